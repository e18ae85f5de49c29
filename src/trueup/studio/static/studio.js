"use strict";
// Sliders: a quick plan while one moves, the whole plan once it rests. Without this script the form plans when it is sent.
const form = document.getElementById("accuracy");
if (form) {
  const rows = Array.from(form.querySelectorAll("tr[data-table]"));
  const at = (id) => document.getElementById(id);
  const short = (x) => String(Number(x.toPrecision(4)));
  let running = false, waiting = null, rest = 0;

  const wishes = () => Object.fromEntries(rows.filter((r) => r.querySelector(".wish").checked)
    .map((r) => [r.dataset.table, Number(r.querySelector(".margin").value)]));

  const show = (found, quick) => {
    at("plan-fault").hidden = true;
    at("sum").textContent = found.total;
    at("epsilon").textContent = found.risk.epsilon;
    at("note").textContent = quick ? "within 2 %" : "";
    const by = new Map(found.tables.map((t) => [t.table, t]));
    for (const row of rows) {
      const table = by.get(row.dataset.table);
      row.querySelector(".reached").textContent = table.margin === null ? "not known" : short(table.margin);
      row.querySelector(".cost").textContent = table.budget || "none";
      if (!row.querySelector(".wish").checked && table.margin !== null) place(row, table.margin);
    }
    document.querySelectorAll("#risk .suspicion").forEach((e, i) => {
      const after = 100 * found.risk.suspicions[i].after;
      e.querySelector(".after").textContent = after.toFixed(1) + " %";
      e.querySelector(".after-bar").setAttribute("width", after.toFixed(2));
    });
  };

  const place = (row, margin) => {
    row.querySelector(".margin").value = short(margin);
    row.querySelector(".slide").value = Math.log10(Math.max(margin, 0.5));
    say(row);
  };
  const say = (row) => row.querySelector(".slide").setAttribute("aria-valuetext", row.querySelector(".margin").value + " counts");

  // One request at a time; of those that wait the newest alone is sent.
  const ask = async (quick, since) => {
    if (running) { waiting = [quick, since]; return; }
    running = true;
    try {
      const answer = await fetch("/plan", {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify({ wishes: wishes(), confidence: Number(at("confidence").value), total: at("total").value.trim(), quick }),
      });
      const found = await answer.json();
      if (found.error) { at("plan-fault").textContent = found.error; at("plan-fault").hidden = false; }
      else { show(found, quick); if (quick) performance.measure("slider", { start: since }); }
    } catch { at("plan-fault").textContent = "The studio does not answer. What was taken is kept; start it again."; at("plan-fault").hidden = false; }
    running = false;
    if (waiting) { const next = waiting; waiting = null; ask(...next); }
  };
  const moved = (quick = true) => {
    ask(quick, performance.now());
    clearTimeout(rest);
    rest = setTimeout(() => ask(false, performance.now()), 700);
  };

  for (const row of rows) {
    const slide = row.querySelector(".slide"), margin = row.querySelector(".margin"), wish = row.querySelector(".wish");
    say(row);
    slide.addEventListener("input", () => { wish.checked = true; margin.value = short(10 ** Number(slide.value)); say(row); moved(); });
    margin.addEventListener("change", () => { wish.checked = true; slide.value = Math.log10(Math.max(Number(margin.value), 0.5)); say(row); moved(); });
    wish.addEventListener("change", () => moved());
  }
  at("confidence").addEventListener("change", () => moved(false));
  at("total").addEventListener("change", () => moved(false));
}

// Work that goes on elsewhere: look how far it is, and load the page anew when it is over.
const job = document.querySelector("[data-job]");
if (job) {
  const look = async () => {
    try {
      const found = await (await fetch("/job/" + job.dataset.job)).json();
      if (found.state !== "running") { location.assign(found.state === "done" && job.dataset.then || location.pathname); return; }
      const said = job.querySelector("label"), bar = job.querySelector("progress");
      if (said.textContent !== found.stage) said.textContent = found.stage;
      if (found.of) { bar.max = found.of; bar.value = found.done; }
    } catch { /* the studio was ended: the work goes on, and is found again */ }
    setTimeout(look, 500);
  };
  setTimeout(look, 300);
}
const again = document.querySelector("form[data-again]");
if (again) setTimeout(() => again.submit(), 1000 * Number(again.dataset.again));

// Explanations close with Escape.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const e of document.querySelectorAll(".term")) e.classList.add("closed");
});
for (const e of document.querySelectorAll(".term"))
  for (const what of ["blur", "mouseleave"]) e.addEventListener(what, () => e.classList.remove("closed"));
