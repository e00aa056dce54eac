// Chosen trials and runs side by side, with intervals over seeds.

import { get } from "./api.js";
import { chart, ticks } from "./chart.js";
import { MISSING, badge, h, number, plural, s, select } from "./dom.js";
import { all, choose, clear } from "./selection.js";

const hashOf = (chosen, by, metric) => `#/compare?${new URLSearchParams({ chosen: chosen.join(","), by, metric })}`;

// ---- intervals

const WIDTH = 260;

const scaleOf = (pairs) => {
  const ends = pairs.flatMap((pair) => [pair.low ?? pair.difference, pair.high ?? pair.difference, 0]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const slack = (high - low || 1) * 0.08;
  return { low: low - slack, high: high + slack, x: (value) => ((value - low + slack) / (high - low + 2 * slack)) * WIDTH };
};

const interval = (pair, { x, low, high }) => {
  const middle = 14;
  const clear = pair.low !== null && (pair.low > 0 || pair.high < 0);
  const marks = ticks(low, high, 4).map((value) => s("line", { class: "grid", x1: x(value), x2: x(value), y1: 0, y2: 28 }));
  return s("svg", { class: `interval${clear ? " resolved" : ""}`, viewBox: `0 0 ${WIDTH} 28`, width: WIDTH, height: 28, role: "img", "aria-label": `difference ${number(pair.difference)}, from ${number(pair.low)} to ${number(pair.high)}` },
    marks, s("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 28 }),
    pair.low === null ? null : s("line", { class: "whisker", x1: x(pair.low), x2: x(pair.high), y1: middle, y2: middle }),
    s("circle", { cx: x(pair.difference), cy: middle, r: 4.5 }));
};

const pairsTable = (found) => {
  const scale = scaleOf(found.pairs);
  const keys = Object.keys(found.pairs[0].line);
  const cells = (pair) => keys.map((key) => h("td", { class: ["a", "b", "verdict"].includes(key) ? null : "number", text: pair.line[key] || MISSING }));
  return h("div", { class: "box" }, h("table", { class: "plain" },
    h("thead", {}, h("tr", {}, [...keys.slice(0, 2), "a − b, 95 % interval", ...keys.slice(2)].map((text) => h("th", { text })))),
    h("tbody", {}, found.pairs.map((pair) => { const [a, b, ...rest] = cells(pair); return h("tr", {}, a, b, h("td", {}, interval(pair, scale)), rest); }))));
};

// ---- scores of each value

const groupsPlot = (groups) => {
  const numbers = groups.flatMap((group) => group.scores).filter((value) => value !== null);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const share = (value) => 100 * ((value - low) / (high - low || 1));
  return h("div", { class: "strips" }, groups.map((group, i) => {
    const mean = group.scores.reduce((sum, value) => sum + value, 0) / group.scores.length;
    const dots = group.scores.slice(0, 400).map((value) => { const dot = h("i", { class: `c${i % 7}` }); dot.style.left = `${share(value)}%`; return dot; });
    const bar = h("b", { class: `c${i % 7}` });
    bar.style.left = `${share(mean)}%`;
    return h("div", { class: "strip" }, h("span", { text: group.value }), h("div", { class: "track" }, dots, bar), h("span", { class: "number", text: `${number(Number(mean.toPrecision(4)))}` }));
  }));
};

// ---- side by side

const sideBySide = (found) => {
  const { trials, keys, metrics } = found.side_by_side;
  const head = h("tr", {}, h("th", { text: "" }), trials.map((trial) => h("th", {}, h("a", { href: `#/trial/${encodeURIComponent(trial.run)}/${trial.id}`, text: trial.id }), h("small", { text: `${trial.run}, ${trial.arm}` }), badge(trial.state))));
  const line = (row, format, kind) => h("tr", { class: kind }, h("th", { scope: "row", text: row.key }), row.values.map((value) => h("td", { class: typeof value === "number" ? "number" : null, text: format(value) })));
  const best = (row) => { const numbers = row.values.filter((value) => value !== null); return numbers.length > 1 && row.key === found.metric ? (found.mode === "max" ? Math.max(...numbers) : Math.min(...numbers)) : null; };
  const metricRow = (row) => { const top = best(row); const one = line(row, number, "metric"); if (top !== null) row.values.forEach((value, i) => { if (value === top) one.cells[i + 1].classList.add("best"); }); return one; };
  const same = keys.filter((row) => !row.differs);
  return h("div", { class: "box" }, h("table", { class: "plain side" }, h("thead", {}, head),
    h("tbody", {}, metrics.map(metricRow)), h("tbody", {}, keys.filter((row) => row.differs).map((row) => line(row, (value) => (value === null ? MISSING : String(value)), "differs")))),
    same.length ? h("details", {}, h("summary", { text: `${same.length} keys are the same in all` }), h("table", { class: "plain" }, h("tbody", {}, same.map((row) => h("tr", {}, h("th", { text: row.key }), h("td", { text: String(row.values[0] ?? "none") })))))) : null);
};

const curvesCard = async (chosen, metric, signal) => {
  const trials = chosen.filter((name) => name.includes(":")).map((name) => name.split(":"));
  if (!trials.length) return null;
  const lines = chart(`${metric} of the chosen trials`);
  const runs = [...new Set(trials.map(([run]) => run))];
  const answers = await Promise.all(runs.map((run) => get("curves", { run, metric, ids: trials.filter(([name]) => name === run).map(([, id]) => id).join(",") }, signal)));
  lines.watch(signal);
  queueMicrotask(() => lines.set(answers.flatMap((answer) => answer.curves)));
  return h("section", { class: "card" }, h("h2", { text: `${metric} over steps` }), lines.element);
};

export const compareView = async (root, parts, params, signal) => {
  const chosen = params.get("chosen")?.split(",").filter(Boolean) ?? all();
  root.append(h("div", { class: "head" }, h("h1", { text: "Compare" }), h("button", { type: "button", text: "Clear", onclick: () => { clear(); location.hash = "#/"; } })));
  if (!chosen.length) {
    root.append(h("p", { class: "empty", text: "Nothing is chosen. Check trials in the table of a run, or runs in the list." }));
    return;
  }
  const chips = chosen.slice(0, 40).map((name) => h("span", { class: "chip" }, name, h("button", { type: "button", "aria-label": `Remove ${name}`, text: "×", onclick: () => {
    choose(name, false);
    location.hash = hashOf(chosen.filter((other) => other !== name), params.get("by") ?? "", params.get("metric") ?? "");
  } })));
  const body = h("div", { class: "stack" }, h("p", { class: "hint", text: "Reading every row …" }));
  root.append(h("p", { class: "chips" }, chips, chosen.length > 40 ? `and ${chosen.length - 40} more` : ""), body);
  const show = async (by, metric) => {
    history.replaceState(null, "", hashOf(chosen, by, metric));
    const found = await get("compare", { chosen: chosen.join(","), by, metric }, signal);
    const tools = h("div", { class: "tools" },
      select("compare the values of", found.keys.map(({ key, title }) => ({ value: key, title })), found.by, (value) => show(value, found.metric).catch(refuse)),
      select("by", found.metrics.map(({ key, title }) => ({ value: key, title })), found.metric, (value) => show(found.by, value).catch(refuse)),
      h("span", { class: "hint", text: plural(found.trials, "trial") }));
    const differences = h("section", { class: "card", id: "differences" }, tools,
      found.reason ? h("p", { class: "empty", text: found.reason }) : [groupsPlot(found.groups), pairsTable(found)], found.notes.map((text) => h("p", { class: "hint", text })));
    const side = found.side_by_side ? h("section", { class: "card" }, h("h2", { text: "Side by side" }), sideBySide(found)) : null;
    body.replaceChildren(...[differences, side, await curvesCard(chosen, found.metric, signal)].filter(Boolean));
  };
  const refuse = (error) => { if (error.name !== "AbortError") body.replaceChildren(h("p", { class: "empty", role: "alert", text: error.message })); };
  await show(params.get("by") ?? "", params.get("metric") ?? "").catch(refuse);
};
