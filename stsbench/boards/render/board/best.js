// The best and the second best of what is shown are bold and underlined, as on the page without script.

/** What a line is compared with: only lines of one kind where measured and published are apart; nothing for others. */
function rankingOf(table, unit, line) {
  const { side } = line.dataset;
  if (side === "difference" || unit.lines[0].dataset.otherwise) return null;
  if ("apart" in table.element.dataset) return side === "imported" ? "published" : side;
  return "all";
}

/** The number of a cell that may be best; NaN for a misprint, which is not compared. */
const comparableNumber = (cell) => (cell.querySelector(".mark[title]") ? NaN : parseFloat(readCell(cell).text));

/** Put a cell's number into an element of this name; without one it stands alone. */
function setMark(cell, tag) {
  const marked = cell.querySelector("b, u");
  const text = readCell(cell).text || "–";
  const node = tag ? create(tag, {}, text) : document.createTextNode(text);
  (marked ?? cell.firstChild).replaceWith(node);
}

/** Mark the best numbers of a column among some lines; marks are put on all of them, or on some. */
function markColumn(place, head, lines, marked = lines) {
  const sign = head.dataset.better === "low" ? 1 : -1;
  const numbers = lines.map((line) => comparableNumber(line.cells[place]));
  const known = numbers.filter((number) => !Number.isNaN(number));
  const [best, second] = [...new Set(known)].sort((a, b) => sign * (a - b));
  lines.forEach((line, at) => {
    if (!marked.includes(line)) return;
    const tag = known.length < 2 || Number.isNaN(numbers[at]) ? "" : { [best]: "b", [second]: "u" }[numbers[at]] ?? "";
    setMark(line.cells[place], tag);
  });
}

/** Mark the best of each group; of all rows that are shown, where some are not, or where there are no groups. */
function markBest(table) {
  const narrowed = table.units.some((unit) => unit.lines.some((line) => line.hidden));
  const together = narrowed || !byId("groups").checked;
  const note = table.element.parentElement.nextElementSibling.querySelector(".ranks span");
  if (note) note.textContent = together ? "the rows shown" : "its group";
  const rankings = new Map(), all = [], added = [];
  for (const unit of table.units) {
    for (const line of shownLines(unit)) {
      const ranking = rankingOf(table, unit, line);
      if (ranking === null) continue;
      all.push(line);
      // A row that was added to a paper's table is compared with all rows of the paper.
      if (!together && unit.lines[0].dataset.added) {
        added.push(line);
        continue;
      }
      const group = together ? "" : [...table.element.tBodies].indexOf(unit.body);
      const key = `${group} ${ranking}`;
      rankings.set(key, [...(rankings.get(key) ?? []), line]);
    }
  }
  table.heads.forEach((head, place) => {
    if (!("ranked" in head.dataset)) return;
    for (const lines of rankings.values()) markColumn(place, head, lines);
    markColumn(place, head, all, added);
  });
}
