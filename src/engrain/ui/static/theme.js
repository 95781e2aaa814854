// Runs before the page is drawn, so that a chosen theme never flashes.
(() => {
  const chosen = localStorage.getItem("engrain-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
