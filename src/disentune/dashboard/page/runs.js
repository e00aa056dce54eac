// The list of runs.

import { complain, every, get } from "./api.js";
import { MISSING, ago, badge, count, duration, h, number, plural, stateBar, stateWords } from "./dom.js";
import { choose, isChosen, onChange } from "./selection.js";

const stateOf = (run) => {
  if (run.problem) return "unreadable";
  if (run.live) return "running";
  if (run.finished) return "finished";
  return run.states ? "interrupted" : "reading";
};

const fact = (title, value) => h("div", { class: "fact" }, h("dt", { text: title }), h("dd", { text: value }));

const card = (run) => {
  const href = `#/run/${encodeURIComponent(run.name)}`;
  const [sweep, name] = run.name.includes("/") ? run.name.split(/\/(.*)/s) : ["", run.name];
  const box = h("input", { type: "checkbox", "aria-label": `Choose ${run.name} for a comparison`,
    onchange: (event) => choose(run.name, event.target.checked) });
  box.checked = isChosen(run.name);
  return h("article", { class: "run-card", "data-run": run.name },
    h("div", { class: "run-head" },
      box,
      h("h2", {}, h("a", { href }, sweep && h("span", { class: "sweep", text: sweep }), sweep && h("span", { class: "slash", text: "/" }), name)),
      badge(stateOf(run))),
    run.problem ? h("p", { class: "hint", text: run.problem }) : null,
    run.states ? stateBar(run.states) : null,
    run.states ? h("p", { class: "words" }, stateWords(run.states)) : null,
    h("dl", {},
      fact("trials", run.trials === undefined ? MISSING : count(run.trials)),
      fact(run.metric ? `best ${run.metric}` : "best", number(run.best)),
      run.live ? fact("time left", duration(run.left_s)) : fact("trained for", duration(run.seconds)),
      fact("changed", ago(run.changed))));
};

/** Redraws without taking the keyboard away from the run that it was at. */
const keepingFocus = (list, redraw) => {
  const at = list.contains(document.activeElement) ? document.activeElement : null;
  const [name, tag] = [at?.closest("[data-run]")?.dataset.run, at?.tagName];
  redraw();
  if (name !== undefined) list.querySelector(`[data-run="${CSS.escape(name)}"] ${tag}`)?.focus();
};

const matches = (run, words) => words.every((word) => `${run.name} ${stateOf(run)}`.toLowerCase().includes(word));

export const runsView = async (root, parts, params, signal) => {
  const title = h("p", { class: "hint" });
  const list = h("div", { class: "run-list" });
  let found = { runs: [] };
  let drawn = "";
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const runs = found.runs.filter((run) => matches(run, words)).sort((a, b) => b.live - a.live || b.changed - a.changed);
    title.textContent = `${plural(found.runs.length, "run")} in ${found.storage ?? ""}`;
    const content = JSON.stringify([runs, words]);
    if (content === drawn) return;
    drawn = content;
    keepingFocus(list, () => list.replaceChildren(...runs.map(card)));
    if (!runs.length) list.append(h("p", { class: "empty", text: words.length ? "No run matches." : "There are no runs yet. Start one with: disentune quickstart" }));
  };
  const filter = h("input", { type: "search", placeholder: "Filter runs  ( / )", "aria-label": "Filter runs", oninput: draw });
  root.append(h("div", { class: "head" }, h("div", {}, h("h1", { text: "Runs" }), title), filter), list);
  onChange(() => { drawn = ""; }, signal);
  await every(2000, async () => {
    found = await get("runs", {}, signal);
    complain(found.trouble);
    draw();
    return found.runs.some((run) => !run.states && !run.problem) ? 500 : 2000;
  }, signal);
};
