// What is shown, as CSV; columns are called as stsbench leaderboard --format csv calls them.

/** How text begins that a spreadsheet would compute; a number is none. */
const FORMULA = /^(?:\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n])/, NUMBER = /^[+-]?[0-9]+(\.[0-9]+)?$/;

function quoted(text) {
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function numberRecord(head, cell) {
  const { text, deviation, low, high } = readCell(cell), { key, kind, method } = head.dataset;
  if (kind === "ranks") {
    const [best = "", worst = best] = text.split("–");
    return { rank_best: best, rank_worst: worst, rank_method: best && method };
  }
  const record = { [key]: text };
  if (deviation) record[`${key}_deviation`] = deviation;
  if (low) Object.assign(record, { [`${key}_low`]: low, [`${key}_high`]: high });
  return record;
}

function records(table) {
  const places = shownPlaces(table), caption = table.element.caption.textContent;
  const order = [...table.element.querySelectorAll("tbody tr:not(.title)")];
  const unitOf = new Map(table.units.flatMap((unit) => unit.lines.map((line) => [line, unit])));
  return order.filter((line) => unitOf.has(line) && !line.hidden).map((line) => {
    const unit = unitOf.get(line);
    return Object.assign(
      { table: caption, section: unit.section, group: unit.title, row: unit.name,
        encoder: unit.lines[0].dataset.encoder ?? "", side: line.dataset.side },
      ...places.map((place) => numberRecord(table.heads[place], line.cells[place])),
    );
  });
}

function csvText() {
  const all = tables.flatMap(records), heads = new Set(all.flatMap(Object.keys));
  const known = [...heads].filter((head) => !/_(deviation|low|high)$/.test(head));
  const order = known.flatMap((head) => [head, ...["deviation", "low", "high"].map((part) => `${head}_${part}`)])
    .filter((head) => heads.has(head));
  return [order, ...all.map((record) => order.map((head) => record[head] ?? ""))]
    .map((row) => `${row.map(quoted).join(",")}\n`).join("");
}

function download() {
  const address = URL.createObjectURL(new Blob([csvText()], { type: "text/csv;charset=utf-8" }));
  const name = document.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "table";
  create("a", { href: address, download: `${name}.csv` }).click();
  URL.revokeObjectURL(address);
}
