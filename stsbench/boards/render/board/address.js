// The state of the page in its address, behind the #: what is searched, chosen, hidden and sorted can be kept and sent.
const PAUSE = 150;
const fields = () => [...byId("controls").querySelectorAll("input[id], select[id]")];
const valueOf = (field) => (field.type === "checkbox" ? String(Number(field.checked)) : field.value);
const startValue = (field) => (field.type === "checkbox" ? String(Number(field.defaultChecked)) : "");

function readState() {
  const state = new URLSearchParams();
  for (const field of fields()) if (valueOf(field) !== startValue(field)) state.set(field.id, valueOf(field));
  for (const key of hiddenKeys()) state.append("without", key);
  for (const { element, heads, sorted } of tables) {
    if (sorted) state.append("sort", `${element.id} ${sorted.sign} ${heads[sorted.place].dataset.key ?? ""}`);
  }
  for (const unit of chosen) state.append("row", `${unit.table.element.id} ${unit.name}`);
  if (root.dataset.theme) state.set("theme", root.dataset.theme);
  return state.toString();
}

let waiting = 0;

/** Write the state into the address; browsers allow that only so often. */
function remember() {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const state = readState();
    history.replaceState(null, "", state ? `#${state}` : location.href.split("#")[0]);
  }, PAUSE);
}

function setField(field, value) {
  if (field.type === "checkbox") field.checked = value === "1";
  else field.value = value;
  // A value that this page does not offer is none.
  if (field.type === "select-one" && field.selectedIndex < 0) field.value = "";
}

function setSortings(sortings) {
  for (const table of tables) setSorting(table, 0, 0);
  for (const [, id, sign, key] of sortings.map((one) => /^(\S+) (-?1) (.*)$/s.exec(one) ?? [])) {
    const table = tables.find((one) => one.element.id === id);
    const place = table?.heads.findIndex((head) => (head.dataset.key ?? "") === key) ?? -1;
    if (place >= 0) setSorting(table, place, Number(sign));
  }
}

/** Take the state from the address; an address of a note is none. */
function restore() {
  const text = location.hash.slice(1);
  if (text && !text.includes("=")) return;
  const state = new URLSearchParams(text), away = new Set(state.getAll("without")), rows = state.getAll("row");
  for (const field of fields()) setField(field, state.get(field.id) ?? startValue(field));
  for (const box of columnBoxes()) box.checked = !away.has(box.value);
  setSortings(state.getAll("sort"));
  chosen = [];
  for (const unit of units) if (rows.includes(`${unit.table.element.id} ${unit.name}`)) choose(unit, true);
  if (["light", "dark"].includes(state.get("theme"))) root.dataset.theme = state.get("theme");
  nameTheme();
  refresh();
}
