// Light or dark: as the system has it, as the reader chooses, or as the address says.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
const nameTheme = () => { byId("theme").textContent = isDark() ? "Light" : "Dark"; };

function setTheme(theme) {
  root.dataset.theme = theme;
  // Pages from files may keep nothing in some browsers.
  try { localStorage.setItem("stsbench-theme", theme); } catch { /* then for this visit only */ }
  nameTheme();
  remember();
}

function startTheme() {
  try { root.dataset.theme = localStorage.getItem("stsbench-theme") ?? ""; } catch { /* as the system has it */ }
  nameTheme();
  dark.addEventListener("change", nameTheme);
  byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
}
