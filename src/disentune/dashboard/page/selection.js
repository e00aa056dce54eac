// Trials (`run:id`) and runs that are checked, on every page of this tab.

const KEY = "disentune-checked";
const chosen = new Set(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
const listeners = new Set();
const button = document.getElementById("compare");

const show = () => {
  button.hidden = chosen.size === 0;
  button.textContent = `Compare ${chosen.size}`;
};

const tell = () => {
  sessionStorage.setItem(KEY, JSON.stringify([...chosen]));
  show();
  for (const listener of listeners) listener();
};

export const isChosen = (name) => chosen.has(name);
export const all = () => [...chosen];
export const ofRun = (run) => all().filter((name) => name.startsWith(`${run}:`)).map((name) => name.slice(run.length + 1));
export const choose = (name, on) => { if (on) chosen.add(name); else chosen.delete(name); tell(); };
export const chooseAll = (names, on) => { for (const name of names) if (on) chosen.add(name); else chosen.delete(name); tell(); };
export const clear = () => { chosen.clear(); tell(); };
export const onChange = (listener, signal) => {
  listeners.add(listener);
  signal.addEventListener("abort", () => listeners.delete(listener), { once: true });
};
show();
