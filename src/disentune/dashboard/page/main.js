// Which page is shown: the part of the address after `#`.

import { complain } from "./api.js";
import { h } from "./dom.js";
import { compareView } from "./compare.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { trialView } from "./trial.js";

const root = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
const theme = document.getElementById("theme");

// ---- light and dark

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const page = document.documentElement;
const isDark = () => (page.dataset.theme ? page.dataset.theme === "dark" : prefersDark.matches);
const showTheme = () => {
  theme.textContent = isDark() ? "Light" : "Dark";
  document.dispatchEvent(new CustomEvent("theme", { detail: isDark() }));
};
const saved = localStorage.getItem("disentune-theme");
if (saved === "light" || saved === "dark") page.dataset.theme = saved;
theme.addEventListener("click", () => {
  page.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("disentune-theme", page.dataset.theme);
  showTheme();
});
prefersDark.addEventListener("change", showTheme);
showTheme();

// ---- pages

const asked = () => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), params: new URLSearchParams(query) };
};

const VIEWS = { "": runsView, run: runView, trial: trialView, compare: compareView };

const showCrumbs = ([kind, run, id]) => {
  const trail = [["#/", "Runs"]];
  if (run) trail.push([`#/run/${encodeURIComponent(run)}`, run]);
  if (id) trail.push([location.hash, id]);
  if (kind === "compare") trail.push(["#/compare", "Compare"]);
  crumbs.replaceChildren(...trail.map(([href, text], place) =>
    h("a", { href, text, "aria-current": place === trail.length - 1 ? "page" : null })));
  document.title = `${trail.at(-1)[1]} – disentune`;
};

let current = new AbortController();
let shownPath = null;

const show = () => {
  const { parts, params } = asked();
  const path = parts.join("/");
  if (path === shownPath && parts[0] === "run") { document.dispatchEvent(new CustomEvent("tab")); return; }
  shownPath = path;
  current.abort();
  current = new AbortController();
  complain("");
  showCrumbs(parts);
  const view = VIEWS[parts[0] ?? ""] ?? runsView;
  root.replaceChildren();
  scrollTo(0, 0);
  Promise.resolve(view(root, parts.slice(1), params, current.signal)).catch((error) => {
    if (error.name !== "AbortError") complain(error.message);
  });
};

addEventListener("hashchange", show);

// ---- keys: / goes to the filter

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const filter = document.querySelector("input[type=search]");
  if (filter) { event.preventDefault(); filter.focus(); }
});

show();
