// Which rows are shown.

/** Whether some alternative has all its words in the text. */
function found(text, search) {
  const alternatives = search.toLowerCase().split(",").map((one) => one.trim()).filter(Boolean);
  return !alternatives.length || alternatives.some((one) => one.split(/\s+/).every((word) => text.includes(word)));
}

/** The ends of a range as the reader gives them; an empty field is no end. */
function readRange(name) {
  const [from, to] = ["from", "to"].map((end) => parseFloat(byId(`${name}-${end}`).value));
  if (Number.isNaN(from) && Number.isNaN(to)) return () => true;
  return (number) => !Number.isNaN(number) && !(number < from) && !(number > to);
}

function filterRows() {
  const search = byId("search").value, side = byId("side").value;
  const wanted = TRAITS.map((name) => byId(name).value);
  const ranges = Object.keys(RANGES).map(readRange);
  for (const unit of units) {
    const fits = wanted.every((value, at) => !value || value === unit.traits[at])
      && ranges.every((within, at) => within(unit.numbers[at])) && found(unit.text, search);
    unit.lines.forEach((line, at) => {
      line.hidden = !fits || (side !== "" && line.dataset.side !== side);
      line.classList.toggle("alone", at > 0 && !line.hidden && unit.lines[0].hidden);
    });
    unit.shown = unit.lines.some((line) => !line.hidden);
  }
}

function refresh() {
  document.body.classList.toggle("flat", !byId("groups").checked);
  document.body.classList.toggle("detailed", byId("details").checked);
  hideColumns();
  filterRows();
  tables.forEach(placeRows);
  tables.forEach(markBest);
  showComparison();
  const shown = units.filter((unit) => unit.shown).length, away = hiddenKeys().length;
  byId("empty").hidden = shown > 0 || !units.length;
  byId("status").textContent = `${shown} of ${units.length} rows`
    + (away ? `; ${away} ${away > 1 ? "tasks" : "task"} hidden, averages are over all of them` : "");
}

function change() {
  refresh();
  remember();
}

/** Offer values to choose from, where there are several. */
function offer(id, values) {
  const known = [...new Set(values)].sort((a, b) => (a === UNSAID) - (b === UNSAID) || a.localeCompare(b, "en"));
  byId(id).append(...known.map((value) => new Option(value, value)));
  byId(id).closest("label").hidden = known.length < 2;
}

/** Offer a range, where there are several numbers; the fields show its ends. */
function offerRange(name, numbers) {
  const known = numbers.filter((number) => !Number.isNaN(number));
  const low = Math.floor(Math.min(...known)), high = Math.ceil(Math.max(...known));
  byId(name).hidden = new Set(known).size < 2;
  byId(`${name}-from`).placeholder = low;
  byId(`${name}-to`).placeholder = high;
}
