// What the controls do.

function clear() {
  byId("controls").reset();
  for (const box of columnBoxes()) box.checked = true;
  setSortings([]);
  change();
}

function start() {
  root.classList.add("scripted");
  tables.forEach(addSorting);
  TRAITS.forEach((name, at) => offer(name, units.map((unit) => unit.traits[at])));
  Object.keys(RANGES).forEach((name, at) => offerRange(name, units.map((unit) => unit.numbers[at])));
  offer("side", units.flatMap((unit) => unit.lines.map((line) => line.dataset.side)));
  addColumns();
  byId("groups").closest("label").hidden = !document.querySelector(".title, .section");
  byId("details").closest("label").hidden = !document.querySelector(".facts");
  byId("compare").closest("label").hidden = units.length < 2;
  byId("controls").addEventListener("input", change);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", clear);
  byId("empty").querySelector("button").addEventListener("click", clear);
  byId("download").addEventListener("click", download);
  // A report may have no table with rows to search and filter.
  for (const id of ["search", "status", "filters"]) byId(id).hidden = !units.length;
  byId("controls").hidden = false;
  byId("filters").open = matchMedia("(min-width: 40rem)").matches;
  startTheme();
  addEventListener("hashchange", restore);
  restore();
}

start();
