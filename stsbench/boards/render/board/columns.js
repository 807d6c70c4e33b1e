// Which columns are shown.
const rules = document.head.appendChild(document.createElement("style"));
const columnBoxes = () => [...byId("columns").querySelectorAll("input")];
const hiddenKeys = () => columnBoxes().filter((box) => !box.checked).map((box) => box.value);

/** One box for each column of scores, whichever tables have it; averages and ranks stay. */
function addColumns() {
  const heads = new Map(tables.flatMap((table) => table.heads.slice(1))
    .filter((head) => head.dataset.kind === "task").map((head) => [head.dataset.key, head.textContent]));
  const box = byId("columns").querySelector("div");
  for (const [key, text] of heads) {
    box.append(create("label", {}, create("input", { type: "checkbox", checked: true, value: key }), ` ${text}`));
  }
  box.querySelectorAll("button").forEach((button, at) => button.addEventListener("click", () => {
    for (const one of columnBoxes()) one.checked = at === 0;
    change();
  }));
  byId("columns").hidden = heads.size < 2;
}

function hideColumns() {
  const away = new Set(hiddenKeys());
  rules.textContent = tables.flatMap((table) => table.heads.map((head, place) => away.has(head.dataset.key)
    ? `#${table.element.id} tr > :nth-child(${place + 1}) { display: none; }` : "")).join("\n");
}

/** The places of a table's columns that are shown, without that of the names. */
function shownPlaces(table) {
  const away = new Set(hiddenKeys());
  return table.heads.map((head, place) => place).filter((place) => place && !away.has(table.heads[place].dataset.key));
}
