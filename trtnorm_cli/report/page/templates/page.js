"use strict";
// Everything here is a convenience: without it all of the page is there, unsorted and unfiltered.
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;

const value = (row, column) => {
  const cell = row.cells[column];
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent.trim();
  return text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text.toLowerCase();
};
const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);

for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.getAttribute("aria-sort") === "ascending" ||
        (!head.hasAttribute("aria-sort") && head.classList.contains("num"));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].map((row, place) => ({ row, place, key: value(row, column) }));
      rows.sort((a, b) => (falls ? -1 : 1) * compare(a.key, b.key) || a.place - b.place);
      body.append(...rows.map((entry) => entry.row));
    });
  });
}

for (const field of document.querySelectorAll("input[data-search]")) {
  const rows = [...document.getElementById(field.dataset.search).tBodies[0].rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const found = document.querySelector(`[data-found="${field.dataset.search}"]`);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      count += row.hidden ? 0 : 1;
    });
    found.textContent = words.length ? `${count} of ${rows.length}` : "";
  });
}

const setOpen = (root, open) => {
  for (const one of root.querySelectorAll("details.change")) one.open = open;
};
for (const button of document.querySelectorAll("[data-open], [data-close]")) {
  const id = button.dataset.open || button.dataset.close;
  button.addEventListener("click", () => setOpen(document.getElementById(id), button.dataset.open !== undefined));
}

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
});
