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
