"use strict";

// Definitions stand once on the page; headings, facts and reasons show theirs as a tooltip.
function explain() {
  const define = (name, elements, label) => {
    const list = document.querySelector(`[data-defines="${name}"]`);
    if (!list) return;
    const docs = new Map([...list.children].map((entry) => [entry.firstElementChild.dataset.label, entry.lastElementChild.textContent]));
    for (const element of elements) {
      const doc = docs.get(label(element));
      if (doc) element.title = doc;
    }
  };
  for (const shown of document.querySelectorAll("[data-of]")) {
    define(shown.dataset.of, shown.querySelectorAll("th, dt"), (element) => element.firstChild.textContent.trim());
  }
  define("reason", document.querySelectorAll("td.reason"), (cell) => cell.textContent);
}

function number(cell) {
  if (cell.dataset.v) return Number(cell.dataset.v);
  const text = cell.textContent.replace(/[,<>]/g, "").trim();
  return text === "" ? NaN : Number(text);
}

function compare(a, b, numeric) {
  const missing = (cell) => cell.classList.contains("none");
  if (missing(a) || missing(b)) return { order: missing(a) - missing(b), fixed: true };
  const order = numeric ? number(a) - number(b) : a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  return { order, fixed: false };
}

function sort(table, column, down) {
  const body = table.tBodies[0];
  const numeric = table.tHead.rows[0].cells[column].classList.contains("num");
  const rows = [...body.rows];
  rows.sort((x, y) => {
    const { order, fixed } = compare(x.cells[column], y.cells[column], numeric);
    return fixed || !down ? order : -order;
  });
  body.append(...rows);
}

explain();

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Figures are looked at from the largest.
      const first = head.classList.contains("num") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const next = head.getAttribute("aria-sort") === first ? other : first;
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      sort(table, column, next === "descending");
    });
  });
}

const filter = document.getElementById("filter");
if (filter) {
  const rows = [...document.querySelectorAll("table.headline tbody tr")];
  const count = document.getElementById("count");
  filter.hidden = false;
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
}

const folding = document.getElementById("folding");
if (folding) {
  folding.hidden = false;
  folding.addEventListener("click", (event) => {
    if (event.target.dataset.open === undefined) return;
    for (const run of document.querySelectorAll("details.run")) run.open = Boolean(event.target.dataset.open);
  });
}

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", reveal);
reveal();
