"use strict";
// Sliders: a quick plan while one moves, the whole plan once it rests. Without this script the form plans when it is sent.
const form = document.getElementById("accuracy");
if (form) {
  const rows = Array.from(form.querySelectorAll("tr[data-table], tr[data-key]"));
  const at = (id) => document.getElementById(id);
  const short = (x) => String(Number(x.toPrecision(4)));
  let running = false, waiting = null, rest = 0, latest = null;

  const wished = (kind) => Object.fromEntries(rows.filter((r) => r.dataset[kind] && r.querySelector(".wish").checked)
    .map((r) => [r.dataset[kind], Number(r.querySelector(".margin").value)]));

  const show = (found, quick) => {
    latest = [found, quick];
    at("plan-fault").hidden = true;
    at("sum").textContent = found.total;
    at("epsilon").textContent = found.risk.epsilon;
    at("note").textContent = quick ? "within 5 %" : "";
    const by = new Map(found.tables.map((t) => [t.table, t]));
    for (const row of rows) {
      if (row.hidden) continue;
      const table = by.get(row.dataset.table || row.dataset.of);
      const margin = row.dataset.table ? table.margin : table.sizes[row.dataset.lowest] ?? null;
      row.querySelector(".reached").textContent = margin === null ? "not known" : short(margin);
      if (row.dataset.table) {
        row.querySelector(".cost").firstChild.textContent = table.budget || "none";
        row.querySelector(".share rect").setAttribute("width", (100 * table.share).toFixed(1));
      }
      if (!row.querySelector(".wish").checked && margin !== null) place(row, margin);
    }
    const suspicions = found.risk.doubts.flatMap((doubt) => doubt.suspicions);
    document.querySelectorAll("#risk .suspicion").forEach((e, i) => {
      const after = 100 * suspicions[i].after;
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
      const answer = await fetch("plan", {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify({ wishes: wished("table"), sizes: wished("key"), confidence: Number(at("confidence").value), total: at("total").value.trim(), quick }),
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
  for (const button of form.querySelectorAll(".more")) {
    const sizes = rows.filter((r) => r.dataset.of === button.closest("tr").dataset.table);
    const fold = () => sizes.forEach((r) => { r.hidden = button.getAttribute("aria-expanded") === "false"; });
    button.addEventListener("click", () => { button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") === "false"); fold(); if (latest) show(...latest); });
    button.hidden = false;
    fold();
  }
  at("confidence").addEventListener("change", () => moved(false));
  at("total").addEventListener("change", () => moved(false));
}

// Work that goes on elsewhere: look how far it is, and load the page anew when it is over.
const job = document.querySelector("[data-job]");
if (job) {
  const look = async () => {
    try {
      const found = await (await fetch("job/" + job.dataset.job)).json();
      if (found.state !== "running") { location.assign(found.state === "done" && job.dataset.then || location.pathname); return; }
      const said = job.querySelector("label"), bar = job.querySelector("progress");
      if (said.textContent !== found.stage) said.textContent = found.stage;
      if (found.of) { bar.max = found.of; bar.value = found.done; }
    } catch { /* the studio was ended: the work goes on, and is found again */ }
    setTimeout(look, 500);
  };
  setTimeout(look, 300);
}
const again = document.querySelector("button[data-again]");
if (again) setTimeout(() => again.form.requestSubmit(again), 1000 * Number(again.dataset.again));

// Places of an own area: the list of codes holds them; boxes and map follow it, and change it.
const chosen = document.getElementById("chosen");
if (chosen) {
  const boxes = Array.from(document.querySelectorAll("input[name=place]"));
  const map = document.getElementById("map");
  const shapes = map ? Array.from(map.querySelectorAll("path")) : [];
  const lines = () => chosen.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const follow = () => {
    const held = new Set(lines());
    for (const box of boxes) box.checked = held.has(box.value);
    for (const shape of shapes) shape.setAttribute("aria-selected", held.has(shape.dataset.key));
  };
  const toggle = (key) => {
    const held = new Set(lines());
    if (!held.delete(key)) held.add(key);
    chosen.value = Array.from(held).join("\n");
    follow();
  };
  chosen.addEventListener("input", follow);
  for (const box of boxes) box.addEventListener("change", () => toggle(box.value));
  follow();

  if (map) {
    let here = null, middles = null;
    const pointed = document.getElementById("pointed");
    const point = (shape) => {
      if (here) here.classList.remove("here");
      here = shape;
      here.classList.add("here");
      map.setAttribute("aria-activedescendant", here.id);
      pointed.textContent = here.querySelector("title").textContent;
    };
    const middle = (shape) => { const b = shape.getBBox(); return [b.x + b.width / 2, b.y + b.height / 2]; };
    // The nearest place whose middle lies towards a side; what lies off the way counts double.
    const next = (x, y) => {
      middles = middles || new Map(shapes.map((shape) => [shape, middle(shape)]));
      const [a, b] = middles.get(here);
      let best = null, least = Infinity;
      for (const [shape, [c, d]] of middles) {
        const along = (c - a) * x + (d - b) * y, off = Math.abs((c - a) * y) + Math.abs((d - b) * x);
        if (along > 0.5 && along + 2 * off < least) { best = shape; least = along + 2 * off; }
      }
      return best;
    };
    const SIDES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    map.addEventListener("focus", () => { if (!here) point(map.querySelector("[aria-selected=true]") || shapes[0]); });
    map.addEventListener("mouseover", (event) => { const shape = event.target.closest("path"); if (shape) pointed.textContent = shape.querySelector("title").textContent; });
    map.addEventListener("click", (event) => { const shape = event.target.closest("path"); if (shape) { point(shape); toggle(shape.dataset.key); } });
    map.addEventListener("keydown", (event) => {
      if (event.key in SIDES) point(next(...SIDES[event.key]) || here);
      else if (event.key === " " || event.key === "Enter") toggle(here.dataset.key);
      else return;
      event.preventDefault();
    });
  }
}

// Explanations stand below their words, inside the window, and close with Escape.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const e of document.querySelectorAll(".term")) e.classList.add("closed");
});
for (const e of document.querySelectorAll(".term")) {
  const tip = e.querySelector(".tip");
  const put = () => {
    const word = e.getBoundingClientRect();
    tip.style.left = Math.max(16, Math.min(word.left, document.documentElement.clientWidth - tip.offsetWidth - 16)) + "px";
    tip.style.top = (word.bottom + tip.offsetHeight > innerHeight ? word.top - tip.offsetHeight : word.bottom) + "px";
  };
  for (const what of ["focus", "mouseenter"]) e.addEventListener(what, put);
  for (const what of ["blur", "mouseleave"]) e.addEventListener(what, () => e.classList.remove("closed"));
}
