// One run: how far it is, its curves, trials and figures.

import { complain, every, get } from "./api.js";
import { chart } from "./chart.js";
import { MISSING, ago, badge, count, duration, h, number, plural, select, stateBar, stateWords, visible } from "./dom.js";
import { figuresPanel } from "./figures.js";
import { trialTable } from "./table.js";

const TABS = { overview: "Overview", trials: "Trials", figures: "Figures", about: "About" };

const tile = (title) => {
  const [value, hint] = [h("p", { class: "big" }), h("p", { class: "hint" })];
  const element = h("div", { class: "tile" }, h("h3", { text: title }), value, hint);
  const set = (big, small = "") => {
    if (big instanceof Node) value.replaceChildren(big); else if (value.textContent !== big) value.textContent = big;
    if (small instanceof Node) hint.replaceChildren(small); else if (hint.textContent !== small) hint.textContent = small;
  };
  return { element, set, title: element.firstChild };
};

const trialLink = (run, id, text = id) => h("a", { href: `#/trial/${encodeURIComponent(run)}/${id}`, text });

const bestTile = (one, run, found) => {
  const best = found.picture?.best;
  one.title.textContent = `Best ${found.objective?.title ?? ""}`;
  const point = best ? Object.entries(best.point).map(([key, value]) => `${key.split(".").at(-1)} ${number(value)}`).join(", ") : "";
  one.set(best ? trialLink(run, best.trial_id, number(best.value)) : MISSING, best ? `${best.arms.join("+")}, seed ${best.seed}${point ? `, ${point}` : ""}` : "no score yet");
};

const progressTile = (one, found) => {
  const ended = found.picture ? found.picture.ended : 0;
  const trials = found.picture?.trials ?? found.of;
  const share = trials ? Math.floor((100 * ended) / trials) : 0;
  one.set(found.picture ? `${share} %` : MISSING, `${count(ended)} of ${plural(trials, "trial")}`);
};

const faultTile = (one, found) => {
  const broken = (found.states.failed ?? 0) + (found.states.diverged ?? 0);
  const faults = Object.entries(found.faults).map(([cause, times]) => `${times} × ${cause.replaceAll("_", " ")}`).join(", ");
  one.set(String(broken), faults ? `failed or diverged; retried: ${faults}` : "failed or diverged");
  one.element.classList.toggle("bad", broken > 0);
};

const runningTable = (run, trials) => h("table", { class: "plain running" },
  h("thead", {}, h("tr", {}, ["trial", "arm", "seed", "progress", "time"].map((text) => h("th", { text })), h("th", { class: "number", text: "value" }))),
  h("tbody", {}, trials.slice(0, 20).map((trial) => h("tr", {}, h("td", {}, trialLink(run, trial.trial_id)), h("td", { text: trial.arms.join("+") }),
    h("td", { text: String(trial.seed) }), h("td", {}, h("progress", { max: trial.steps, value: trial.step, "aria-label": `${trial.step} of ${trial.steps} steps` }), h("small", { text: ` ${count(trial.step)}/${count(trial.steps)}` })),
    h("td", { text: duration(trial.seconds) }), h("td", { class: "number", text: number(trial.value) })))));

const MOST_LETTERS = 300;
/** The page of the trial has the whole text. */
const shortened = (text) => (text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS)} …` : text);

const troubleList = (run, troubles) => h("ul", { class: "plain-list" }, troubles.map((one) => h("li", {}, badge(one.state), " ", trialLink(run, one.trial_id),
  one.count > 1 ? ` and ${one.count - 1} more: ` : ": ", h("span", { text: shortened(one.cause || "no cause was recorded") }), h("small", { class: "path", text: one.path }))));

const gigabytes = (megabytes) => `${number(Number((megabytes / 1024).toPrecision(2)))} GB`;

/** What the workers of a node use, as far as their rows say. */
const usage = ({ trials, cpu_percent, memory_mb, gpu_memory_mb }) => [plural(trials, "trial"),
  cpu_percent ? `${number(Number((cpu_percent / 100).toPrecision(2)))} cores busy` : "",
  memory_mb ? `${gigabytes(memory_mb)} of memory` : "",
  gpu_memory_mb ? `${gigabytes(gpu_memory_mb)} of GPU memory` : ""].filter(Boolean).join(", ");

const overviewPanel = (run, signal) => {
  const lines = chart("The metric over the steps of training");
  const tools = h("div", { class: "tools" });
  const now = h("section", { class: "card", hidden: true });
  const troubles = h("section", { class: "card", hidden: true });
  const notes = h("section", { class: "card notes", hidden: true });
  let [metric, by, isChosen, known, version] = ["", "arm", false, "", -1];
  lines.watch(signal);

  const load = async () => {
    if (!metric) return;
    const [asked, group] = [metric, by];
    try {
      const found = await get("curves", { run, metric, by }, signal);
      if (asked === metric && group === by) { lines.set(found.curves); version = found.version; }
    } catch (error) {
      if (error.name !== "AbortError") lines.set([], error.message);
    }
  };
  const showTools = (columns) => {
    const metrics = columns.metrics.map(({ key, title }) => ({ value: key, title }));
    const keys = [{ value: "arm", title: "arm" }, { value: "", title: "all trials" }, ...columns.keys.map(({ key, title }) => ({ value: key, title }))];
    metric = metric || metrics[0]?.value || "";
    by = isChosen ? by : columns.colour;
    tools.replaceChildren(select("metric", metrics, metric, (value) => { metric = value; load(); }), select("colour", keys, by, (value) => { [by, isChosen] = [value, true]; load(); }),
      h("span", { class: "hint", text: "mean and quartiles over trials" }));
  };
  const update = async (found, columns, newest, isShown) => {
    const marks = JSON.stringify([columns?.metrics, columns?.keys]);
    if (columns && marks !== known) { known = marks; showTools(columns); version = -1; }
    if (newest !== version && isShown) await load();
    const running = found.picture?.running_trials ?? [];
    now.hidden = !running.length;
    if (running.length) now.replaceChildren(h("h2", { text: `Training now: ${running.length}` }), h("div", { class: "box" }, runningTable(run, running)), nodes(found.nodes));
    const bad = found.picture?.troubles ?? [];
    troubles.hidden = !bad.length;
    if (bad.length) troubles.replaceChildren(h("h2", { text: "Faults" }), troubleList(run, bad));
    const said = found.picture?.notes ?? [];
    notes.hidden = !said.length;
    notes.replaceChildren(h("h2", { text: "Notes" }), h("ul", {}, said.map((text) => h("li", { text }))), found.picture?.notes_left_out ? h("p", { text: `and ${found.picture.notes_left_out} more` }) : "");
  };
  const nodes = (found) => h("ul", { class: "plain-list hint" }, Object.entries(found).map(([node, used]) => h("li", { text: `${node}: ${usage(used)}` })));
  return { element: h("div", { class: "stack" }, h("section", { class: "card" }, tools, lines.element), now, troubles, notes), update, draw: load };
};

const aboutPanel = (run, signal) => {
  const element = h("section", { class: "card" }, h("p", { class: "hint", text: "Reading …" }));
  const open = async () => {
    const { facts, commands } = await get("environment", { run }, signal);
    element.replaceChildren(h("h2", { text: "Made with" }), h("dl", { class: "facts" }, Object.entries(facts).map(([key, value]) => h("div", {}, h("dt", { text: key }), h("dd", { text: value })))),
      h("h2", { text: "From the command line" }), h("ul", { class: "plain-list" }, commands.map((text) => h("li", {}, h("code", { text })))));
  };
  return { element, open };
};

export const runView = async (root, [run], params, signal) => {
  const [progress, speed, left, best, faults] = ["Progress", "Trials per hour", "Time left", "Best", "Faults"].map(tile);
  const title = h("h1", {}, h("span", { text: run }));
  const question = h("p", { class: "question" });
  const bar = h("div");
  const words = h("p", { class: "words" });
  const table = trialTable(run, signal);
  const figures = figuresPanel(run, signal);
  const overview = overviewPanel(run, signal);
  const about = aboutPanel(run, signal);
  const panels = { overview: overview.element, trials: table.element, figures: figures.element, about: about.element };
  const tabs = h("div", { class: "tabs", role: "tablist" }, Object.entries(TABS).map(([name, text]) => h("a", { role: "tab", href: `#/run/${encodeURIComponent(run)}?tab=${name}`, "data-tab": name, text })));
  const parts = [h("div", { class: "head" }, h("div", {}, title, question)), bar, words, h("div", { class: "tiles" }, progress.element, speed.element, left.element, best.element, faults.element), tabs, ...Object.values(panels)];

  let found = null;
  let columns = null;
  const asked = () => new URLSearchParams(location.hash.split("?")[1]).get("tab");
  const showTab = () => {
    const chosen = TABS[asked()] ? asked() : "overview";
    for (const [name, panel] of Object.entries(panels)) panel.hidden = name !== chosen;
    for (const tab of tabs.children) tab.setAttribute("aria-selected", String(tab.dataset.tab === chosen));
    const opened = { figures: () => figures.open(), about: () => about.open(), trials: () => table.draw(), overview: () => overview.draw() };
    Promise.resolve(opened[chosen]()).catch((error) => { if (error.name !== "AbortError") complain(error.message); });
  };
  document.addEventListener("tab", showTab, { signal });

  const showState = () => {
    const picture = found.picture;
    const state = found.live ? (picture?.stopping ? "stopping" : "running") : picture ? (picture.finished ? "finished" : "interrupted") : "reading";
    title.replaceChildren(h("span", { text: run }), " ", badge(state));
    question.textContent = visible(found.question);
    bar.replaceChildren(stateBar(found.states));
    const reading = found.read < found.of ? [h("span", { class: "state-word", text: `read ${count(found.read)} of ${plural(found.of, "trial")} …` })] : [];
    words.replaceChildren(...stateWords(found.states), ...reading);
    progressTile(progress, found);
    speed.title.textContent = found.live ? "Trials per hour" : "Trained for";
    left.title.textContent = found.live ? "Time left" : "Last change";
    if (!found.live) {
      speed.set(duration(found.seconds), "all trials together");
      left.set(ago(found.changed), "no driver runs it now");
    } else showPace(picture);
    bestTile(best, run, found);
    faultTile(faults, found);
  };

  const showPace = (picture) => {
    speed.set(picture?.trials_per_hour ? number(Number(picture.trials_per_hour.toPrecision(3))) : MISSING, picture?.steps_per_second ? `${number(Number(picture.steps_per_second.toPrecision(3)))} steps per second` : "none has ended yet");
    left.set(duration(picture?.seconds_left), `running for ${duration(picture?.session_s)}`);
  };

  let [since, mark] = [0, ""];
  const readLines = async () => {
    const answer = await get("trials", { run, since, columns: mark }, signal);
    if (answer.reset) columns = answer;
    [since, mark] = [answer.version, answer.columns];
    table.set(answer, found?.objective, found?.picture?.best?.trial_id);
    return answer;
  };

  const open = () => {
    root.replaceChildren(...parts);
    showTab();
  };
  open();
  await every(1000, async () => {
    found = await get("run", { run }, signal);
    if (!root.childElementCount) open();
    complain(found.trouble);
    showState();
    while ((await readLines()).more && !signal.aborted);
    await overview.update(found, columns, since, !panels.overview.hidden);
    return found.read < found.of || !found.picture ? 400 : found.live ? 1000 : 3000;
  }, signal, (error) => {
    complain(error.message);
    if (!found && error.status < 500) root.replaceChildren();  // there is no such run, or it may not be read
  });
};
