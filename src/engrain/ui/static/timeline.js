// The chart of the timeline, and the slider that shows the memory as it was.
(() => {
  "use strict";
  const box = document.querySelector("[data-overview]");
  if (!box) return;
  const chart = document.getElementById("chart");
  const slider = document.getElementById("as-of-slider");
  const label = document.getElementById("as-of-label");
  const field = document.getElementById("as-of");
  const hint = document.getElementById("chart-hint");
  const form = document.getElementById("filters");
  const END = 1000, EDGE = 24;
  let data = null;
  let plot = null;

  const color = (name) => {
    const probe = document.createElement("i");
    probe.className = name;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const two = (number) => String(number).padStart(2, "0");
  const local = (date) =>
    `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}` +
    (isShort() ? `:${two(date.getSeconds())}` : "");
  const isShort = () => data && data.step < 60;  // of a memory of a few minutes, seconds matter

  const chosen = () => (field.value ? new Date(field.value).getTime() / 1000 : null);
  const range = () => [data.bars[0], Math.max(data.now, data.bars.at(-1) + data.step)];

  function show() {
    const at = chosen();
    label.textContent = at === null ? "now" : field.value.replace("T", " ");
    label.classList.toggle("then", at !== null);
    if (!data || !data.bars.length) return;
    const [first, last] = range();
    slider.value = at === null ? END : Math.round((END * (at - first)) / (last - first));
    if (plot) plot.redraw();
  }
  function draw() {
    if (plot) plot.destroy();
    plot = null;
    chart.replaceChildren();
    if (!data.bars.length || chart.clientWidth < 50) return;
    const ink = color("chart-ink"), before = color("chart-bar"), after = color("chart-rest");
    const name = { day: { day: "numeric", month: "short" }, month: { month: "short", year: "numeric" }, hour: { hour: "2-digit", minute: "2-digit", hour12: false }, second: { timeStyle: "medium", hour12: false } };
    const [first, last] = range();
    const form = last - first < 900 ? name.second : last - first < 2 * 86400 ? name.hour : last - first < 300 * 86400 ? name.day : name.month;
    const write = new Intl.DateTimeFormat(undefined, form);
    // A label at the edge would be cut off.
    const inside = (at) => Math.min(at - first, last - at) * chart.clientWidth > EDGE * (last - first);
    const values = (_, moments) => moments.map((at) => (inside(at) ? write.format(new Date(at * 1000)) : null));
    const axis = { values, space: 90, stroke: ink, grid: { show: false }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const fill = (self) => {
      const at = chosen();
      if (at === null) return before;
      const cut = Math.max(0, Math.min(1, (at - self.scales.x.min) / (self.scales.x.max - self.scales.x.min)));
      const shade = self.ctx.createLinearGradient(self.bbox.left, 0, self.bbox.left + self.bbox.width, 0);
      for (const [stop, tone] of [[0, before], [cut, before], [cut, after], [1, after]]) shade.addColorStop(stop, tone);
      return shade;
    };
    plot = new uPlot(
      {
        width: chart.clientWidth, height: 92, padding: [6, 0, 0, 0], legend: { show: false },
        cursor: { y: false, drag: { setScale: false }, points: { show: false } },
        scales: { x: { range: range() }, y: { range: (_, __, most) => [0, Math.max(1, most)] } },
        axes: [{ ...axis, size: 22, gap: 4 }, { show: false }],
        hooks: { setCursor: [(self) => tell(self.cursor.idx, self.cursor.left)] },
        series: [{}, { paths: uPlot.paths.bars({ size: [0.86, 28], align: 1, radius: 0.2 }), fill, stroke: fill, width: 0, points: { show: false } }],
      },
      // The root of a count: a day with one item is seen beside a day with a thousand.
      [data.bars, data.counts.map(Math.sqrt)], chart,
    );
    plot.over.addEventListener("click", () => {
      if (plot.cursor.left >= 0) set(plot.posToVal(plot.cursor.left, "x"));
    });
  }
  function tell(index, left) {
    const count = left >= 0 && index !== null && data.counts[index];
    hint.textContent = count ? `${count.toLocaleString()} ${count === 1 ? "item" : "items"} from ${local(new Date(data.bars[index] * 1000)).replace("T", " ")}` : "";
  }
  function set(at, send = true) {
    const [, last] = range();
    field.value = at >= last - 1 ? "" : local(new Date(at * 1000));
    show();
    if (send) field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  slider.addEventListener("input", (event) => {
    event.stopPropagation();
    const [first, last] = range();
    set(first + ((last - first) * slider.value) / END, false);
  });
  slider.addEventListener("change", (event) => {
    event.stopPropagation();
    field.dispatchEvent(new Event("change", { bubbles: true }));
  });
  field.addEventListener("change", show);
  document.querySelector("[data-now]").addEventListener("click", () => {
    field.value = "";
    show();
    field.dispatchEvent(new Event("change", { bubbles: true }));
  });
  document.addEventListener("theme", () => data && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => data && draw());
  new ResizeObserver(() => data && (!plot || plot.width !== chart.clientWidth) && draw()).observe(chart);

  const fillList = (id, names) =>
    document.getElementById(id).replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
  fetch(box.dataset.overview).then((answer) => answer.json()).then((found) => {
    data = found;
    fillList("sources", data.sources);
    fillList("sessions", data.sessions);
    for (const mark of form.querySelectorAll("[data-count]")) mark.textContent = (data.kinds[mark.dataset.count] || 0).toLocaleString();
    slider.disabled = !data.bars.length;
    field.step = isShort() ? 1 : 60;
    draw();
    show();
  }, () => { /* the person left the page meanwhile */ });
})();
