for (const group of document.querySelectorAll(".samples")) {
  const bar = group.querySelector(".filter");
  bar.hidden = false;
  bar.addEventListener("click", (event) => {
    const wanted = event.target.dataset.show;
    if (!wanted) return;
    for (const button of bar.children) button.setAttribute("aria-pressed", button === event.target);
    for (const card of group.querySelectorAll(".sample")) card.hidden = wanted !== "all" && card.dataset.kind !== wanted;
  });
}
for (const board of document.querySelectorAll(".disputes")) {
  const bar = board.querySelector(".decide");
  const rows = [...board.querySelectorAll("tr[data-row]")];
  const place = "stepmark-" + board.dataset.key;
  const remark = (row) => row.querySelector(".remark");
  const chosen = (row) => row.querySelector("input:checked");
  const decided = () => rows.filter(chosen).map((row) => ({
    ...JSON.parse(row.dataset.row),
    correct: { right: true, wrong: false, unsure: null }[chosen(row).value],
    note: remark(row).value,
  }));
  const tell = () => { bar.querySelector(".decided").textContent = decided().length + " of " + rows.length + " decided"; };
  const keep = () => {
    const state = rows.map((row) => [chosen(row) ? chosen(row).value : "", remark(row).value]);
    try { localStorage.setItem(place, JSON.stringify(state)); } catch { /* a browser may forbid it: the download is enough */ }
    tell();
  };
  try {
    (JSON.parse(localStorage.getItem(place)) || []).forEach(([choice, note], index) => {
      const button = rows[index].querySelector('input[value="' + choice + '"]');
      if (button) button.checked = true;
      remark(rows[index]).value = note;
    });
  } catch { /* nothing was kept */ }
  board.addEventListener("input", keep);
  bar.querySelector(".download").addEventListener("click", () => {
    const text = decided().map((row) => JSON.stringify(row) + "\n").join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
    link.download = "adjudications.jsonl";
    link.click();
  });
  bar.hidden = false;
  tell();
}
