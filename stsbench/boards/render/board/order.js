// The order of rows: within their groups, or all together.

/** What a unit is sorted by: the number, or the letters, of its first shown line that has any; NaN where none has. */
function keyIn(unit, place) {
  const texts = shownLines(unit).map((line) => readCell(line.cells[place]).text);
  if (unit.table.heads[place].dataset.kind === "letters") return texts.find(Boolean) ?? NaN;
  // Sizes of models are printed in millions or billions: 560M, 7.11B.
  const toNumber = (text) => parseFloat(text) * (text.trim().endsWith("B") ? 1e3 : 1);
  return texts.map(toNumber).find((number) => !Number.isNaN(number)) ?? NaN;
}

function comparing(place, sign) {
  if (place === 0) return (a, b) => sign * a.name.localeCompare(b.name, "en", { numeric: true });
  return (a, b) => {
    const left = a.key, right = b.key;
    if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
    return sign * (typeof left === "string" ? left.localeCompare(right, "en") : left - right);
  };
}

function placeRows(table) {
  const grouped = byId("groups").checked, order = [...table.units];
  if (table.sorted) {
    for (const unit of order) unit.key = keyIn(unit, table.sorted.place);
    order.sort(comparing(table.sorted.place, table.sorted.sign));
  }
  const [first] = [...table.element.tBodies].filter((body) => body.className !== "section");
  for (const unit of order) (grouped ? unit.body : first).append(...unit.lines);
  for (const title of table.element.querySelectorAll(".title, .section")) title.hidden = !grouped;
  hideTable(table);
  if (grouped) hideEmpty(table);
  else for (const body of table.element.tBodies) body.hidden = body !== first;
}

/** Tables without a row that is shown go, with their notes. */
function hideTable(table) {
  const box = table.element.parentElement;
  box.hidden = box.nextElementSibling.hidden = !table.units.some((unit) => unit.shown);
}

/** Groups without a row that is shown go, and headings above nothing but such groups. */
function hideEmpty(table) {
  const full = new Set(table.units.filter((unit) => unit.shown).map((unit) => unit.body));
  let heading = null;
  for (const body of table.element.tBodies) {
    if (body.className === "section") (heading = body).hidden = true;
    else if (!(body.hidden = !full.has(body)) && heading) heading.hidden = false;
  }
}

/** Sort by a column: a sign of 1 puts the lowest first, -1 the highest, 0 is the order that the page came in. */
function setSorting(table, place, sign) {
  table.sorted = sign ? { place, sign } : null;
  for (const head of table.heads) head.removeAttribute("aria-sort");
  if (sign) table.heads[place].setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
}

/** First the best on top, then the worst, then the order that the page came in. */
function sortNext(table, place) {
  const natural = place === 0 || table.heads[place].dataset.better === "low" ? 1 : -1;
  const before = table.sorted?.place === place ? table.sorted.sign : 0;
  setSorting(table, place, before === 0 ? natural : before === natural ? -natural : 0);
  placeRows(table);
  remember();
}

function addSorting(table) {
  table.heads.forEach((head, place) => {
    const button = create("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => sortNext(table, place));
    head.append(button);
  });
}
