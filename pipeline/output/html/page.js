"use strict";

// Definitions are once on the page; headings, facts and reasons show them as tooltips.
function explain(part) {
  const define = (name, elements, label) => {
    const list = document.querySelector(`[data-defines="${name}"]`);
    if (!list) return;
    const docs = new Map([...list.children].map((entry) => [entry.firstElementChild.dataset.label, entry.lastElementChild.textContent]));
    for (const element of elements) {
      const doc = docs.get(label(element));
      if (doc) element.title = doc;
    }
  };
  for (const shown of part.querySelectorAll("[data-of]")) {
    define(shown.dataset.of, shown.querySelectorAll("th, dt"), (element) => element.firstChild.textContent.trim());
  }
  define("reason", part.querySelectorAll("td.reason"), (cell) => cell.textContent);
}

// --- tables -----------------------------------------------------------------------------

function number(cell) {
  if (cell.dataset.v) return Number(cell.dataset.v);
  const text = cell.textContent.replace(/[,<>]/g, "").trim();
  return text === "" ? NaN : Number(text);
}

function compare(a, b, numeric) {
  const missing = (cell) => cell.classList.contains("none");
  if (missing(a) || missing(b)) return { order: missing(a) - missing(b), fixed: true };
  if (a.dataset.v && b.dataset.v) return { order: number(a) - number(b), fixed: false };
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

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Numbers sort from the largest.
      const first = head.classList.contains("num") ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const next = head.getAttribute("aria-sort") === first ? other : first;
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", next);
      sort(table, column, next === "descending");
    });
  });
}

// A word of the filter is a comparison of a column (bubble>70), or text that a row must have.
function condition(word, heads) {
  const parts = /^([a-z_]+)(>=|<=|>|<|=)(-?[\d.]+)$/.exec(word);
  const plain = (text) => text.toLowerCase().replace(/[^a-z]/g, "");
  const column = parts ? heads.findIndex((head) => plain(head).startsWith(plain(parts[1]))) : -1;
  if (column < 0) return (row, text) => text.includes(word);
  const limit = Number(parts[3]);
  const compare = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit, "=": (v) => v === limit }[parts[2]];
  return (row) => compare(number(row.cells[column]));
}

function makeFilter(filter) {
  const table = document.querySelector("table.headline");
  const heads = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  const rows = [...table.tBodies[0].rows];
  const texts = rows.map((row) => `${row.textContent} ${row.dataset.words}`.toLowerCase());
  const count = document.getElementById("count");
  const urgent = document.getElementById("urgent");
  const configs = [...document.querySelectorAll("button[data-config]")];
  const apply = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => condition(word, heads));
    const config = configs.find((button) => button.getAttribute("aria-pressed") === "true")?.dataset.config.toLowerCase();
    let shown = 0;
    rows.forEach((row, place) => {
      const text = texts[place];
      row.hidden =
        !wanted.every((test) => test(row, text)) ||
        (config !== undefined && !text.includes(config)) ||
        (urgent.checked && !row.querySelector("td.attention")?.textContent);
      shown += !row.hidden;
    });
    count.textContent = shown < rows.length ? `${shown} of ${rows.length}` : "";
  };
  filter.closest(".tools").hidden = false;
  filter.addEventListener("input", apply);
  urgent.addEventListener("change", apply);
  for (const button of configs) {
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      for (const each of configs) each.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-pressed", String(!pressed));
      apply();
      if (!pressed) document.getElementById("runs").scrollIntoView();
    });
  }
}

// --- compressed runs, and charts -----------------------------------------------------------------------------

async function unpack(block) {
  const packed = Uint8Array.from(atob(block.textContent.trim()), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function rowsOf(series) {
  const names = Object.keys(series);
  return series[names[0]].map((_, place) => Object.fromEntries(names.map((name) => [name, series[name][place]])));
}

// A canvas has no CSS variables: resolve colours when it is drawn.
function colored(spec) {
  const style = getComputedStyle(document.documentElement);
  return JSON.parse(JSON.stringify(spec).replace(/var\((--[\w-]+)\)/g, (_, name) => style.getPropertyValue(name).trim()));
}

let charts;

async function load() {
  const [library, data] = await Promise.all(["chart-library", "chart-data"].map((id) => unpack(document.getElementById(id))));
  const script = document.createElement("script");
  script.textContent = library;
  document.head.append(script);
  return JSON.parse(data);
}

async function draw(figure) {
  const { specs, canvas, series } = await (charts ??= load());
  const { chart, run } = figure.dataset;
  const place = figure.querySelector(".chart");
  const pixels = canvas.includes(chart);
  const spec = pixels ? colored(specs[chart]) : structuredClone(specs[chart]);
  spec.config.legend.columns = Math.max(2, Math.floor(place.clientWidth / 105));
  spec.datasets = { rows: rowsOf(series[run][chart]) };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (pixels) place.style.background = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  await vegaEmbed(place, spec, {
    ast: true, // the page's policy forbids code made from text
    actions: false,
    logLevel: 1, // errors only
    renderer: pixels ? "canvas" : "svg",
    tooltip: { theme: dark ? "dark" : "light" },
  });
  figure.dataset.drawn = "";
}

function failed(figure, error) {
  figure.querySelector(".chart").textContent = `This chart cannot be drawn here (${error.message}). The table has its figures.`;
  console.error(error);
}

const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) drawOnce(target);
  },
  { rootMargin: "400px" },
);

function drawOnce(figure) {
  seen.unobserve(figure);
  if ("begun" in figure.dataset) return undefined;
  figure.dataset.begun = "";
  return draw(figure).catch((error) => failed(figure, error));
}

// Draw the charts of expanded runs before printing, because nobody scrolls to them.
const DRAWN_AHEAD = 60;
let ahead = Promise.resolve();

function drawAhead(figures) {
  const some = figures.slice(0, DRAWN_AHEAD);
  ahead = some.reduce((before, figure) => before.then(() => figure.isConnected && drawOnce(figure)), ahead);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of document.querySelectorAll("figure[data-drawn]")) draw(figure).catch((error) => failed(figure, error));
});

// --- the page -----------------------------------------------------------------------------

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement?.closest("details")) if (at instanceof HTMLDetailsElement) at.open = true;
  target.scrollIntoView();
}

function enliven(part) {
  explain(part);
  for (const table of part.querySelectorAll("table.sortable")) makeSortable(table);
  for (const figure of part.querySelectorAll("figure[data-chart]")) seen.observe(figure);
}

function drawOpen(run) {
  if (run.open) drawAhead([...run.querySelectorAll("figure[data-chart]")]);
}

async function fill(run) {
  const block = run.querySelector(":scope > script.body");
  if (block && run.open) {
    block.classList.remove("body");
    const body = document.createElement("div");
    body.innerHTML = await unpack(block);
    block.replaceWith(body);
    enliven(body);
  }
  drawOpen(run);
}

enliven(document);
for (const run of document.querySelectorAll("details.run")) {
  run.addEventListener("toggle", () => fill(run));
  fill(run);
}

const filter = document.getElementById("filter");
if (filter) makeFilter(filter);

const folding = document.getElementById("folding");
if (folding) {
  folding.hidden = false;
  folding.addEventListener("click", (event) => {
    if (event.target.dataset.open === undefined) return;
    for (const run of document.querySelectorAll("details.run")) run.open = Boolean(event.target.dataset.open);
  });
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  // Pages opened from a disk cannot use the clipboard API.
  getSelection().selectAllChildren(button.previousElementSibling);
  if (document.execCommand("copy")) button.textContent = "Copied";
});

addEventListener("hashchange", reveal);
reveal();
