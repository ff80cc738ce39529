for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const value = (row, column) => {
    const cell = row.cells[column];
    return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
  };
  const compare = (a, b) => {
    const numbers = (typeof a === "number") + (typeof b === "number");
    if (numbers === 1) return typeof a === "number" ? -1 : 1;
    return numbers === 2 ? a - b : a.localeCompare(b);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.title = "sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const downwards = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", downwards ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((one, two) => {
        const [a, b] = [value(one, column), value(two, column)];
        const mixed = typeof a !== typeof b;
        return compare(a, b) * (downwards && !mixed ? -1 : 1);
      });
      body.append(...rows);
    });
  });
  heads.forEach((head, column) => {
    const cells = [...table.tBodies[0].rows].map((row) => row.cells[column]);
    const words = cells.every((cell) => !("sort" in cell.dataset));
    if (words) [head, ...cells].forEach((cell) => cell.classList.add("words"));
    for (const cell of cells) cell.classList.toggle("long", cell.textContent.length > 60);
  });
}
