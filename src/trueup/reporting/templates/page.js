"use strict";
// Search and sorting of the folding tables. Without this script every table can still be read.
const value = (text) => {
  const number = parseFloat(text.replaceAll(",", "").replace("−", "-"));
  return Number.isNaN(number) ? -Infinity : number;
};

function sortBy(table, at, heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const numeric = heading.classList.contains("n");
  const compare = numeric
    ? (a, b) => (a.key === b.key ? 0 : a.key - b.key)
    : (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
  const body = table.tBodies[0];
  const rows = Array.from(body.rows, (row) => {
    const text = row.cells[at].textContent;
    return { row, key: numeric ? value(text) : text.toLowerCase() };
  });
  rows.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
  body.append(...rows.map((item) => item.row));
}

function addSorting(table) {
  Array.from(table.tHead.rows[0].cells).forEach((heading, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, at, heading));
    heading.append(button);
  });
}

function addSearch(table) {
  const tools = table.closest("details").querySelector(".tools");
  if (!tools) return;
  const input = tools.querySelector("input");
  const status = tools.querySelector("[role=status]");
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let found = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      if (!row.hidden) found += 1;
    }
    status.textContent = wanted ? `${found.toLocaleString("en")} ${found === 1 ? "row" : "rows"} found` : "";
  });
  tools.hidden = false;
}

for (const table of document.querySelectorAll("table.sortable")) {
  addSorting(table);
  addSearch(table);
}
