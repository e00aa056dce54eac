// The table of trials: thousands of lines, of which only those in sight are in the page.

import { MISSING, badge, count, duration, h, number } from "./dom.js";
import { choose, chooseAll, isChosen, onChange } from "./selection.js";

const ROW = 36;
const SPARE = 12;
const collator = new Intl.Collator("en", { numeric: true });

const textOf = (column, value) => {
  if (value === null || value === undefined || value === "") return MISSING;
  if (column.kind === "time") return duration(value);
  return typeof value === "number" ? number(value) : String(value);
};

const compared = (a, b, sign) => {
  const [isA, isB] = [a !== null && a !== undefined && a !== "", b !== null && b !== undefined && b !== ""];
  if (!isA || !isB) return isB - isA;
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b)));
};

/** The columns of an answer of the server, in the order of the page. */
export const columnsOf = (answer) => {
  const place = Object.fromEntries(answer.fixed.map((key, i) => [key, i]));
  const fixed = (key, title, kind) => ({ key, title, kind, at: place[key] });
  const keys = answer.keys.map((one, i) => ({ ...one, kind: "key", at: answer.fixed.length + i }));
  const metrics = answer.metrics.map((one, i) => ({ ...one, kind: "metric", at: answer.fixed.length + keys.length + i }));
  return [fixed("id", "trial", "id"), fixed("state", "state", "state"), ...metrics.slice(0, 1), ...keys, fixed("seed", "seed", "number"),
    fixed("step", "step", "step"), fixed("seconds", "time", "time"), ...metrics.slice(1), fixed("arm", "arm", "text"),
    fixed("node", "node", "text"), fixed("cause", "cause", "text")];
};

const OPERATORS = { ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, "<": (a, b) => a < b };

/** `word`, `key=text`, `key>0.5`: every part of the filter must hold. */
export const filterOf = (text, columns) => {
  const tests = text.trim().split(/\s+/).filter(Boolean).map((word) => {
    const [, key, sign, value] = word.match(/^([^<>=]+)(>=|<=|=|>|<)(.+)$/) ?? [];
    const column = key && columns.find((one) => one.key.toLowerCase() === key.toLowerCase() || one.title.toLowerCase() === key.toLowerCase());
    if (!column) return (line) => line.some((cell) => cell !== null && String(cell).toLowerCase().includes(word.toLowerCase()));
    if (sign !== "=") return (line) => typeof line[column.at] === "number" && OPERATORS[sign](line[column.at], Number(value));
    const isNumber = value.trim() !== "" && Number.isFinite(Number(value));
    return (line) => (isNumber && typeof line[column.at] === "number" ? line[column.at] === Number(value)
      : String(line[column.at] ?? "").toLowerCase().includes(value.toLowerCase()));
  });
  return (line) => tests.every((test) => test(line));
};

const WIDTHS = { id: 9.5, state: 6.5, time: 7, step: 7.5, number: 4.5 };
const LETTER = 0.55;

const widthOf = (column, lines) => {
  if (WIDTHS[column.kind]) return WIDTHS[column.kind];
  const longest = lines.slice(0, 200).reduce((most, line) => Math.max(most, textOf(column, line[column.at]).length), column.title.length + 3);
  return Math.min(18, Math.max(4.5, longest * LETTER + 1.6));
};

/** The table of a run. `set(answer)` takes new lines in; nothing else is drawn than what is in sight. */
export const trialTable = (run, signal) => {
  const lines = new Map();
  let columns = [];
  let order = [];
  let sort = { key: null, sign: -1 };
  let objective = null;
  let active = 0;
  let best = null;

  const output = h("output", { class: "hint" });
  const filter = h("input", { type: "search", placeholder: "Filter:  ada_gvae  seed=2  mig>0.3   ( / )", "aria-label": "Filter trials", oninput: () => arrange() });
  const state = h("select", { "aria-label": "State", onchange: () => arrange() },
    ["every state", "done", "stopped", "running", "pending", "diverged", "failed"].map((text) => h("option", { text })));
  const menu = h("details", { class: "menu" }, h("summary", { class: "button", text: "Columns" }));
  const hiddenColumns = new Set();
  const everyBox = h("input", { type: "checkbox", "aria-label": "Choose all trials that are listed", onchange: (event) => chooseAll(order.map((line) => `${run}:${line[0]}`), event.target.checked) });
  const group = h("colgroup");
  const head = h("tr");
  const body = h("tbody");
  const table = h("table", { class: "trials", "aria-rowcount": 0 }, group, h("thead", {}, head), body);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Trials; arrow keys move, space chooses, enter opens" }, table);

  const shownColumns = () => columns.filter((column) => !hiddenColumns.has(column.key));

  const arrange = () => {
    const column = columns.find((one) => one.key === sort.key);
    const holds = filterOf(filter.value, columns);
    const at = columns.find((one) => one.key === "state")?.at;
    const wanted = state.selectedIndex ? state.value : null;
    order = [...lines.values()].filter((line) => (wanted === null || line[at] === wanted) && holds(line));
    if (column) order.sort((a, b) => compared(a[column.at], b[column.at], sort.sign) || (a[0] < b[0] ? -1 : 1));
    output.textContent = order.length === lines.size ? `${count(lines.size)} trials` : `${count(order.length)} of ${count(lines.size)} trials`;
    active = Math.min(active, Math.max(0, order.length - 1));
    table.setAttribute("aria-rowcount", order.length);
    draw();
  };

  const sortBy = (key) => {
    const column = columns.find((one) => one.key === key);
    const first = column.kind === "metric" && column.best === "max" ? -1 : 1;
    sort = sort.key === key ? { key, sign: -sort.sign } : { key, sign: first };
    showHead();
    arrange();
  };

  const showHead = () => {
    const listed = [...lines.values()];
    group.replaceChildren(h("col"), ...shownColumns().map((column) => {
      const col = h("col");
      col.style.width = `${widthOf(column, listed)}rem`;
      return col;
    }));
    group.firstChild.style.width = "2.4rem";
    const total = shownColumns().reduce((sum, column) => sum + widthOf(column, listed), 2.4);
    table.style.width = `max(100%, ${total}rem)`;
    head.replaceChildren(h("th", {}, everyBox), ...shownColumns().map((column) => h("th", {
      class: isNumeric(column) ? "number" : null, scope: "col", title: column.key,
      "aria-sort": sort.key === column.key ? (sort.sign > 0 ? "ascending" : "descending") : "none",
    }, h("button", { type: "button", class: "sort", text: column.title, onclick: () => sortBy(column.key) }))));
  };

  const showMenu = () => {
    const items = columns.filter((column) => column.kind !== "id").map((column) => {
      const box = h("input", { type: "checkbox", onchange: (event) => {
        if (event.target.checked) hiddenColumns.delete(column.key); else hiddenColumns.add(column.key);
        showHead();
        draw();
      } });
      box.checked = !hiddenColumns.has(column.key);
      return h("label", {}, box, column.title);
    });
    menu.replaceChildren(menu.firstChild, h("div", { class: "menu-items" }, items));
  };

  const isNumeric = (column) => ["metric", "number", "time", "step"].includes(column.kind) || (column.kind === "key" && column.numeric);

  const cell = (column, line) => {
    const value = line[column.at];
    if (column.kind === "id") return h("td", {}, h("a", { href: `#/trial/${encodeURIComponent(run)}/${value}`, tabindex: "-1", text: value }));
    if (column.kind === "state") return h("td", {}, badge(value));
    if (column.kind === "step") return h("td", { class: "number" }, number(value), h("small", { text: `/${number(line[column.at + 1])}` }));
    const text = textOf(column, value);
    const isBest = column.key === objective && line[0] === best;
    return h("td", { class: `${isNumeric(column) ? "number" : ""}${column.key === objective ? " objective" : ""}${isBest ? " best" : ""}`, title: text.length > 20 ? text : null, text });
  };

  const row = (line, place) => {
    const name = `${run}:${line[0]}`;
    const box = h("input", { type: "checkbox", tabindex: "-1", "aria-label": `Choose ${line[0]}`, onchange: (event) => choose(name, event.target.checked) });
    box.checked = isChosen(name);
    return h("tr", { class: `${place === active ? "active" : ""}${isChosen(name) ? " chosen" : ""}`, "aria-rowindex": place + 1, "data-id": line[0] },
      h("td", {}, box), shownColumns().map((column) => cell(column, line)));
  };

  const padding = (rows) => {
    const one = h("tr", { class: "padding", "aria-hidden": "true" }, h("td"));
    one.firstChild.style.height = `${rows * ROW}px`;
    return one;
  };

  const draw = () => {
    const height = scroller.clientHeight || 600;
    const top = Math.min(scroller.scrollTop, Math.max(0, (order.length + 1) * ROW - height)); // a filter may leave fewer lines
    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const last = Math.min(order.length, Math.ceil((top + height) / ROW) + SPARE);
    const parts = order.slice(first, last).map((line, i) => row(line, first + i));
    if (first) parts.unshift(padding(first));
    if (last < order.length) parts.push(padding(order.length - last));
    body.replaceChildren(...parts);
  };

  let frame = 0;
  scroller.addEventListener("scroll", () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  }, { passive: true });

  const go = (place) => {
    active = Math.max(0, Math.min(order.length - 1, place));
    const top = active * ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    const bottom = top + 2 * ROW - scroller.clientHeight + 6;
    if (bottom > scroller.scrollTop) scroller.scrollTop = bottom;
    draw();
  };
  const KEYS = { ArrowDown: () => go(active + 1), ArrowUp: () => go(active - 1), PageDown: () => go(active + 12), PageUp: () => go(active - 12), Home: () => go(0), End: () => go(order.length - 1),
    " ": () => { const name = `${run}:${order[active][0]}`; choose(name, !isChosen(name)); },
    Enter: () => { location.hash = `#/trial/${encodeURIComponent(run)}/${order[active][0]}`; } };
  scroller.addEventListener("keydown", (event) => {
    if (event.target !== scroller || !KEYS[event.key] || !order.length) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  onChange(draw, signal);

  const markNumeric = () => {
    const sample = [...lines.values()].slice(0, 50);
    for (const column of columns) if (column.kind === "key") column.numeric = sample.every((line) => line[column.at] === null || typeof line[column.at] === "number");
  };

  const set = (answer, goal, bestId) => {
    best = bestId;
    if (answer.reset) {
      lines.clear();
      columns = columnsOf(answer);
      objective = goal?.metric ?? null;
      if (!sort.key && objective) sort = { key: objective, sign: goal.mode === "max" ? -1 : 1 };
      for (const column of columns) if (["node", "cause"].includes(column.key)) hiddenColumns.add(column.key);
      showMenu();
    }
    for (const line of answer.lines) lines.set(line[0], line);
    for (const id of answer.gone) lines.delete(id);
    if (answer.lines.length || answer.gone.length || answer.reset) {
      markNumeric();
      showHead();
      arrange();
    }
  };
  const tools = h("div", { class: "tools" }, filter, state, menu, output);
  return { element: h("section", { class: "card flush", "aria-label": "Trials" }, tools, scroller), set, draw, lines };
};
