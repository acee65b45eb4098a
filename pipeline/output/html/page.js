"use strict";

function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

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

function sort(table, column, down) {
  const body = table.tBodies[0];
  const numeric = table.tHead.rows[0].cells[column].classList.contains("num");
  const missing = (cell) => cell.classList.contains("none");
  const rows = [...body.rows].map((row) => [row, row.cells[column]]);
  rows.sort(([, a], [, b]) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    const numbers = numeric || (a.dataset.v && b.dataset.v);
    const order = numbers ? number(a) - number(b) : a.textContent.localeCompare(b.textContent, "en", { numeric: true });
    return down ? -order : order;
  });
  body.append(...rows.map(([row]) => row));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
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
function condition(word) {
  const parts = /^([a-z_]+)(>=|<=|>|<|=)(-?[\d.]+)$/.exec(word);
  const plain = (text) => text.toLowerCase().replace(/[^a-z]/g, "");
  const known = [...document.querySelectorAll("table.headline th")];
  const named = (head) => plain(head.textContent).startsWith(plain(parts[1]));
  if (!parts || !known.some(named)) return (row, text) => text.includes(word);
  const limit = Number(parts[3]);
  const compare = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit, "=": (v) => v === limit }[parts[2]];
  return (row) => {
    const column = [...row.closest("table").tHead.rows[0].cells].findIndex(named);
    return column >= 0 && compare(number(row.cells[column]));
  };
}

function makeFilter(filter) {
  const rows = [...document.querySelectorAll("table.headline tbody tr")];
  const texts = rows.map((row) => `${row.textContent} ${row.dataset.words}`.toLowerCase());
  const count = document.getElementById("count");
  const urgent = document.getElementById("urgent");
  const configs = [...document.querySelectorAll("button[data-config]")];
  const apply = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean).map(condition);
    const config = configs.find((button) => button.getAttribute("aria-pressed") === "true")?.dataset.config.toLowerCase();
    let shown = 0;
    rows.forEach((row, place) => {
      const text = texts[place];
      row.hidden =
        !wanted.every((test) => test(row, text)) ||
        (config !== undefined && !` ${row.dataset.words.toLowerCase()} `.includes(` ${config} `)) ||
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

// A legend has the names that the rows have, and no other.
function present(spec, series) {
  return JSON.parse(JSON.stringify(spec), (_, part) => {
    const { domain, range } = part?.scale ?? {};
    const there = series[part?.field];
    if (!there || typeof domain?.[0] !== "string") return part;
    const places = [...domain.keys()].filter((place) => there.includes(domain[place]));
    return { ...part, scale: { ...part.scale, domain: places.map((p) => domain[p]), range: places.map((p) => range[p]) } };
  });
}

let charts;

async function load() {
  const [library, data] = await Promise.all(["chart-library", "chart-data"].map((id) => unpack(document.getElementById(id))));
  document.head.append(make("script", { textContent: library }));
  return JSON.parse(data);
}

async function draw(figure) {
  const { specs, canvas, series } = await (charts ??= load());
  const { chart, run } = figure.dataset;
  if (chart === "timeline") {
    drawTimeline(figure, rowsOf(series[run][chart]));
    figure.dataset.drawn = "";
    return;
  }
  const place = figure.querySelector(".chart");
  const pixels = canvas.includes(chart);
  const spec = present(pixels ? colored(specs[chart]) : specs[chart], series[run][chart]);
  // A legend begins where the plot does, behind the labels of the axis.
  spec.config.legend.columns = Math.max(1, Math.floor((place.clientWidth - 90) / 105));
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

// --- the timeline of a step ---------------------------------------------------------------

const COLORS = { forward: "compute", backward: "backward", receive: "recv", send: "send", collective: "comm", optimizer: "finalize", data: "data", other: "other" };
const ROW = 26;
const AXIS = 22;

function hatch(context, color) {
  const tile = make("canvas", { width: 6, height: 6 });
  const pen = tile.getContext("2d");
  pen.strokeStyle = color;
  pen.lineWidth = 1.2;
  for (const shift of [-6, 0, 6]) {
    pen.beginPath();
    pen.moveTo(shift, 6);
    pen.lineTo(shift + 6, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

// Draw the operations of a step: a row per rank, a thin lane for communication inside operations,
// hatches where it waits, the slow rank in red, arrows from a late rank to those that wait for it.
function drawTimeline(figure, all) {
  const place = figure.querySelector(".chart");
  const steps = [...new Map(all.map((row) => [row.step, row])).values()];
  const chooser = make("select", {}, ...steps.map(({ step, pick, step_ms }) => new Option(`${step}: ${pick}, ${step_ms.toLocaleString("en")} ms`, step)));
  const search = make("input", { type: "search", placeholder: "all_reduce, rank 7, waiting" });
  const legend = make("span", { className: "legend" });
  const canvas = make("canvas");
  const tip = make("p", { className: "more tip" }, "Point at a bar. Drag to move; wheel with Ctrl, \u2318 or Shift to zoom; double click shows all again.");
  tip.setAttribute("role", "status");
  place.replaceChildren(make("p", { className: "tools" }, make("label", {}, "Step ", chooser), make("label", {}, "Find ", search), legend), canvas, tip);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const context = canvas.getContext("2d");
  const wait = hatch(context, color("c5"));
  for (const kind of [...Object.keys(COLORS), "waiting"]) {
    if (!all.some((row) => row.kind === kind)) continue;
    const mark = make("i");
    mark.style.background = kind === "waiting" ? `repeating-linear-gradient(135deg, ${color("c5")} 0 1px, transparent 1px 4px)` : color(COLORS[kind]);
    legend.append(make("span", {}, mark, kind));
  }
  let rows, labels, end, from, to;
  const width = () => Math.max(280, place.clientWidth);
  const left = () => (width() < 600 ? 92 : 170);
  const x = (ms) => left() + ((ms - from) / (to - from)) * (width() - left() - 8);
  const choose = () => {
    rows = all.filter((row) => row.step === Number(chooser.value));
    labels = [...new Map(rows.map((row) => [row.rank, row])).values()];
    end = Math.max(...rows.map((row) => row.t1));
    [from, to] = [0, end];
    paint();
  };
  const text = (row) => `${row.label} ${row.kind} ${row.op ?? ""} ${row.inside ? "inside" : ""}`.toLowerCase();
  function paint() {
    const scale = devicePixelRatio || 1;
    const height = labels.length * ROW + AXIS;
    canvas.style.width = `${width()}px`;
    canvas.style.height = `${height}px`;
    canvas.width = width() * scale;
    canvas.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = color("paper");
    context.fillRect(0, 0, width(), height);
    context.font = "11px system-ui, sans-serif";
    const found = search.value.toLowerCase();
    const top = new Map(labels.map((row, at) => [row.rank, at * ROW]));
    for (const [at, row] of labels.entries()) {
      context.fillStyle = row.verdict ? color("bad") : color("ink");
      context.textAlign = "right";
      const name = width() < 600 ? `rank ${row.rank}` : row.label;
      context.fillText(name, left() - 6, at * ROW + (row.verdict ? 10 : 15));
      if (row.verdict) context.fillText(row.verdict, left() - 6, at * ROW + 22);
    }
    context.save();
    context.beginPath();
    context.rect(left(), 0, width() - left() - 8, height);
    context.clip();
    for (const row of rows) {
      const a = x(row.t0), b = Math.max(x(row.t1), a + 0.5);
      if (b < left() || a > width()) continue;
      const y = top.get(row.rank) + (row.inside ? 17 : 2), tall = row.inside ? 7 : 14;
      context.globalAlpha = found && !text(row).includes(found) ? 0.12 : 1;
      context.fillStyle = row.kind === "waiting" ? wait : color(COLORS[row.kind]);
      context.fillRect(a, y, b - a, tall);
      if (row.kind === "waiting") {
        context.strokeStyle = color("c5");
        context.lineWidth = 0.6;
        if (b - a > 3) context.strokeRect(a, y, b - a, tall);
      } else if (!row.inside && row.batch !== null && b - a > 14 && (row.kind === "forward" || row.kind === "backward")) {
        context.fillStyle = "#ffffff";
        context.textAlign = "left";
        context.fillText(row.batch, a + 3, y + 11);
      }
    }
    // An operation that waits inside is cut out where it waits: its rank is no slow one.
    for (const row of rows) {
      if (!row.inside || row.kind !== "waiting") continue;
      const a = x(row.t0), b = x(row.t1), y = top.get(row.rank) + 2;
      if (b - a < 1.5) continue;
      context.globalAlpha = found && !text(row).includes(found) ? 0.3 : 1;
      context.fillStyle = color("paper");
      context.fillRect(a, y, b - a, 14);
      context.fillStyle = wait;
      context.fillRect(a, y, b - a, 14);
    }
    context.globalAlpha = 1;
    arrows(top);
    context.restore();
    axis(height);
  }
  function arrows(top) {
    const long = rows.filter((row) => row.kind === "waiting" && row.last !== null && row.last !== row.rank && top.has(row.last) && row.t1 - row.t0 > (to - from) / 100);
    long.sort((one, other) => other.t1 - other.t0 - (one.t1 - one.t0));
    context.strokeStyle = context.fillStyle = color("bad");
    context.lineWidth = 0.9;
    for (const row of long.slice(0, 30)) {
      const at = x(row.t1), start = top.get(row.last) + 9, stop = top.get(row.rank) + (row.inside ? 20 : 9);
      const way = Math.sign(stop - start);
      context.beginPath();
      context.moveTo(at, start);
      context.lineTo(at, stop);
      context.moveTo(at - 3, stop - 4 * way);
      context.lineTo(at, stop);
      context.lineTo(at + 3, stop - 4 * way);
      context.stroke();
    }
  }
  function axis(height) {
    const rough = (to - from) / (width() < 600 ? 4 : 9);
    const power = 10 ** Math.floor(Math.log10(rough));
    const tick = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    context.fillStyle = color("soft");
    context.textAlign = "center";
    for (let at = Math.ceil(from / tick) * tick; at <= to; at += tick) context.fillText(`${Number(at.toPrecision(6))}`, x(at), height - 6);
    context.textAlign = "right";
    context.fillText("ms", left() - 6, height - 6);
  }
  const move = (start, stop) => {
    const span = Math.min(end, stop - start);
    from = Math.max(0, Math.min(end - span, start));
    to = from + span;
    paint();
  };
  const under = (event, start = from, stop = to) => {
    const box = canvas.getBoundingClientRect();
    return { at: start + ((event.clientX - box.left - left()) / (width() - left() - 8)) * (stop - start), y: event.clientY - box.top };
  };
  canvas.addEventListener("wheel", (event) => {
    if (!(event.ctrlKey || event.metaKey || event.shiftKey)) return;
    event.preventDefault();
    const { at } = under(event);
    const factor = (event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25;
    move(at - (at - from) * factor, at + (to - at) * factor);
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (event) => { held = { ...under(event), from, to }; });
  addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (held) {
      const { at } = under(event, held.from, held.to);
      move(held.from + held.at - at, held.to + held.at - at);
      return;
    }
    const { at, y } = under(event);
    const row = labels[Math.floor(y / ROW)];
    const lane = y % ROW > 16;
    const hit = row && rows.findLast((one) => one.rank === row.rank && one.inside === lane && one.t0 <= at && at <= one.t1);
    if (!hit) return;
    const what = hit.kind === "waiting" ? `waits${hit.last === null ? "" : ` for rank ${hit.last}`} in ${hit.op ?? `${hit.n} operations`}` : `${hit.kind} ${hit.op ?? `${hit.n} operations`}`;
    tip.textContent = `${hit.label}: ${what}, ${(hit.t1 - hit.t0).toFixed(3)} ms from ${hit.t0.toFixed(3)} ms`;
  });
  canvas.addEventListener("dblclick", () => move(0, end));
  chooser.addEventListener("change", choose);
  search.addEventListener("input", paint);
  new ResizeObserver(() => { if (canvas.isConnected && Math.abs(canvas.clientWidth - width()) > 1) paint(); }).observe(place);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Timeline of ${all.length} operations; the tables below have the figures`);
  choose();
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

// --- two runs side by side ------------------------------------------------------------------

// Draw where the difference of two steps went: the bars lead from one sum of operations to the other.
function compareRuns(shares, before, after) {
  const [one, other] = [shares[before], shares[after]];
  const total = (run) => Object.values(run).reduce((sum, ms) => sum + ms, 0);
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  const changes = names.map((name) => [name, (other[name] ?? 0) - (one[name] ?? 0)]);
  changes.sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const bars = changes.slice(0, 12);
  const rest = changes.slice(12).reduce((sum, [, ms]) => sum + ms, 0);
  if (changes.length > 12) bars.push([`${changes.length - 12} others`, rest]);
  const levels = bars.reduce((found, [, ms]) => [...found, found.at(-1) + ms], [total(one)]);
  const low = Math.min(...levels), reach = Math.max(Math.max(...levels) - low, 0.02 * levels[0]) || 1;
  const [left, width, tall] = [160, 460, 19];
  const x = (ms) => left + (width - left - 66) * (0.04 + (0.92 * (ms - low)) / reach);
  const shown = (ms) => ms.toLocaleString("en", { maximumFractionDigits: 2, minimumFractionDigits: 2 });
  const height = tall * (bars.length + 2) + 4;
  const said = `Operations of a step: ${shown(levels[0])} ms before, ${shown(levels.at(-1))} ms after`;
  const row = ([name, from, to, style, text], place) => {
    const [a, b] = [x(Math.min(from, to)), x(Math.max(from, to))];
    const y = tall * place + 15;
    return `<text x="${left - 6}" y="${y}" text-anchor="end">${new Option(name).innerHTML}</text>
      <rect class="${style}" x="${a}" y="${y - 11}" width="${Math.max(1.5, b - a)}" height="${tall - 5}"/>
      <text x="${b + 5}" y="${y}">${text}</text>`;
  };
  const rows = [
    ["before", levels[0], levels[0], "whole", `${shown(levels[0])} ms`],
    ...bars.map(([name, ms], place) => [name, levels[place], levels[place + 1], ms > 0 ? "more" : "less", `${ms > 0 ? "+" : ""}${shown(ms)}`]),
    ["after", levels.at(-1), levels.at(-1), "whole", `${shown(levels.at(-1))} ms`],
  ];
  return `<svg class="plot waterfall" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${said}">${rows.map(row).join("")}</svg>`;
}

function makeComparison(section) {
  const side = (name) => section.querySelector(`[data-side=${name}]`).value;
  section.hidden = false;
  section.querySelector("button").addEventListener("click", async () => {
    const { shares } = await (charts ??= load());
    section.querySelector(".answer").innerHTML = compareRuns(shares, side("before"), side("after"));
  });
}

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

async function fill(run) {
  if (!run.open) return;
  const block = run.querySelector(":scope > script.body");
  if (block) {
    block.classList.remove("body");
    const body = make("div", { innerHTML: await unpack(block) });
    block.replaceWith(body);
    enliven(body);
  }
  if (run.open) drawAhead([...run.querySelectorAll("figure[data-chart]")]);
}

enliven(document);
for (const run of document.querySelectorAll("details.run")) {
  run.addEventListener("toggle", () => fill(run));
  fill(run);
}

const filter = document.getElementById("filter");
if (filter) makeFilter(filter);

const comparison = document.getElementById("compare");
if (comparison) makeComparison(comparison);

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
