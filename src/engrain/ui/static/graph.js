// Relations as a force graph: drag nodes, move and zoom the ground, pick a node to see its relations.
(() => {
  "use strict";
  const box = document.getElementById("graph");
  if (!box) return;
  const svg = box.querySelector("svg");
  const TOOLS = 44;  // the height of the buttons above the graph
  const SVG = "http://www.w3.org/2000/svg";
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const short = (text) => (text.length > 26 ? text.slice(0, 25) + "…" : text);
  const radius = (node) => 6 + 2.4 * Math.sqrt(node.degree);
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const form = document.getElementById("relation-filters");
  const field = document.getElementById("entity");
  const view = { x: 0, y: 0, k: 1, touched: false };
  // Letters stay readable where the whole graph is made small.
  const letters = () => Math.min(1.8, 1 / Math.min(1, view.k));
  let ground, nodes = [], links = [], simulation;

  function load() {
    const asOf = form.elements.as_of.value;
    fetch(box.dataset.graph + (asOf ? "?as_of=" + encodeURIComponent(asOf) : "")).then((answer) => answer.json()).then(draw, () => { /* the person left the page meanwhile */ });
  }
  function draw(data) {
    if (simulation) simulation.stop();
    ({ nodes, links } = data);
    document.getElementById("entities").replaceChildren(
      ...nodes.map((node) => Object.assign(document.createElement("option"), { value: node.id })));
    const arrow = make("marker", { id: "arrow", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
      make("path", { d: "M0 1 9 5 0 9z", class: "arrow" }));
    ground = make("g");
    svg.replaceChildren(make("defs", {}, arrow), ground);
    box.classList.toggle("many", links.length > 60);
    for (const link of links) {
      link.line = make("path", { "marker-end": "url(#arrow)" });
      link.text = make("text");
      link.text.textContent = short(link.label);
      link.shape = make("g", { class: "link" }, link.line, link.text);
      ground.append(link.shape);
    }
    for (const node of nodes) {
      const text = node.text = make("text");
      const title = make("title");
      text.textContent = short(node.label);
      title.textContent = node.label;
      node.shape = make("g", { class: "node" }, make("circle", { r: radius(node) }), text, title);
      node.shape.addEventListener("pointerdown", (event) => drag(event, node));
      ground.append(node.shape);
    }
    bendParallelLinks();
    const { clientWidth: width, clientHeight: height } = svg;
    simulation = d3.forceSimulation(nodes)
      .force("link", d3.forceLink(links).id((node) => node.id).distance(140))
      .force("charge", d3.forceManyBody().strength(-1100).distanceMax(900))
      .force("x", d3.forceX(width / 2).strength(0.06)).force("y", d3.forceY(height / 2).strength(0.1))
      .force("collide", d3.forceCollide((node) => radius(node) + 26))
      .on("tick", place);
    // Most of the movement happens before the first picture: nobody waits for the graph to settle.
    simulation.stop().tick(still || nodes.length > 150 ? 300 : 220);
    if (!still && nodes.length <= 150) simulation.restart();
    view.touched = false;
    place();
    choose(box.dataset.entity);
  }
  function bendParallelLinks() {
    const seen = new Map();
    for (const link of links) {
      const pair = [link.source, link.target].sort().join("\u0000");
      link.bend = seen.get(pair) || 0;
      seen.set(pair, link.bend + 1);
    }
  }
  // A label stands on its link, at the first place where it covers no other label.
  function label(link, mx, my, taken) {
    const { source, target } = link, size = letters(), width = 6 * size * link.text.textContent.length;
    let x, y;
    for (const t of [0.45, 0.6, 0.33, 0.7, 0.25]) {
      const a = (1 - t) ** 2, b = 2 * t * (1 - t), c = t * t;
      (x = a * source.x + b * mx + c * target.x), (y = a * source.y + b * my + c * target.y + 3);
      if (!taken.some((one) => Math.abs(one.x - x) < (one.width + width) / 2 && Math.abs(one.y - y) < 12 * size)) break;
    }
    taken.push({ x, y, width });
    link.text.setAttribute("x", x), link.text.setAttribute("y", y);
  }
  function place() {
    const taken = links.length > 60 ? { some: () => false, push: () => 0 } : nodes.map((node) => ({ x: node.x, y: node.y + radius(node) + 12, width: 7 * letters() * short(node.label).length }));
    for (const link of links) {
      const { source, target } = link;
      if (source === target) {
        const r = radius(source);
        link.line.setAttribute("d", `M${source.x - r} ${source.y} a ${r * 1.3} ${r * 1.3} 0 1 1 ${r} ${-r}`);
        link.text.setAttribute("x", source.x - r), link.text.setAttribute("y", source.y - 3 * r);
        continue;
      }
      const dx = target.x - source.x, dy = target.y - source.y, length = Math.hypot(dx, dy) || 1;
      const bend = (link.bend % 2 ? 1 : -1) * Math.ceil(link.bend / 2) * 46;
      const mx = (source.x + target.x) / 2 - (dy / length) * bend, my = (source.y + target.y) / 2 + (dx / length) * bend;
      const end = Math.hypot(target.x - mx, target.y - my) || 1, gap = radius(target) + 3;
      const ex = target.x - ((target.x - mx) / end) * gap, ey = target.y - ((target.y - my) / end) * gap;
      link.line.setAttribute("d", bend ? `M${source.x} ${source.y} Q${mx} ${my} ${ex} ${ey}` : `M${source.x} ${source.y} L${ex} ${ey}`);
      label(link, mx, my, taken);
    }
    for (const node of nodes) node.shape.setAttribute("transform", `translate(${node.x} ${node.y})`);
    if (!view.touched) fit();
  }
  function move() {
    ground.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
    ground.style.setProperty("--letters", letters());
    for (const node of nodes) node.text.setAttribute("dy", radius(node) + 3 + 12 * letters());
  }
  function fit() {
    if (!nodes.length) return;
    const ys = nodes.map((node) => node.y), edge = 54, half = (node) => Math.max(30, 4 * letters() * short(node.label).length) + 12;
    const left = Math.min(...nodes.map((node) => node.x - half(node))), right = Math.max(...nodes.map((node) => node.x + half(node))), top = Math.min(...ys) - edge / 1.6, bottom = Math.max(...ys) + edge;
    const height = svg.clientHeight - TOOLS;
    view.k = Math.min(1.15, svg.clientWidth / (right - left), height / (bottom - top));
    view.x = svg.clientWidth / 2 - (view.k * (left + right)) / 2;
    view.y = TOOLS + height / 2 - (view.k * (top + bottom)) / 2;
    move();
  }
  function zoom(by, x = svg.clientWidth / 2, y = svg.clientHeight / 2) {
    const k = Math.max(0.1, Math.min(4, view.k * by));
    view.x = x - ((x - view.x) * k) / view.k;
    view.y = y - ((y - view.y) * k) / view.k;
    view.k = k;
    view.touched = true;
    move();
  }
  function choose(name) {
    box.dataset.entity = name;
    const one = nodes.find((node) => node.id === name);
    box.classList.toggle("focused", Boolean(one));
    const near = new Set(one ? [one] : []);
    for (const link of links) {
      const touches = one && (link.source === one || link.target === one);
      link.shape.classList.toggle("near", Boolean(touches));
      if (touches) near.add(link.source).add(link.target);
    }
    for (const node of nodes) {
      node.shape.classList.toggle("near", near.has(node));
      node.shape.classList.toggle("chosen", node === one);
    }
  }
  function pick(name) {
    field.value = name;
    choose(name);
    field.dispatchEvent(new Event("change", { bubbles: true }));
  }
  const follow = (event, onMove, onEnd) => {
    svg.setPointerCapture(event.pointerId);
    svg.classList.add("moving");
    const stop = () => {
      svg.removeEventListener("pointermove", onMove);
      svg.classList.remove("moving");
      onEnd();
    };
    svg.addEventListener("pointermove", onMove);
    svg.addEventListener("pointerup", stop, { once: true });
  };
  function drag(event, node) {
    event.stopPropagation();
    const start = [event.clientX, event.clientY];
    let moved = false;
    follow(event, (now) => {
      moved = moved || Math.hypot(now.clientX - start[0], now.clientY - start[1]) > 4;
      if (!moved) return;
      view.touched = true;
      const at = svg.getBoundingClientRect();
      node.fx = (now.clientX - at.left - view.x) / view.k;
      node.fy = (now.clientY - at.top - view.y) / view.k;
      simulation.alphaTarget(0.2).restart();
    }, () => {
      node.fx = node.fy = null;
      simulation.alphaTarget(0);
      if (!moved) pick(box.dataset.entity === node.id ? "" : node.id);
    });
  }
  svg.addEventListener("pointerdown", (event) => {
    let { clientX: x, clientY: y } = event;
    follow(event, (now) => {
      view.x += now.clientX - x, view.y += now.clientY - y;
      x = now.clientX, y = now.clientY;
      view.touched = true;
      move();
    }, () => {});
  });
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - at.left, event.clientY - at.top);
  }, { passive: false });
  box.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    if (button.dataset.zoom !== "fit") return zoom(Number(button.dataset.zoom));
    view.touched = false;
    fit();
  }));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-entity-link]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    pick(link.dataset.entityLink);
  });
  field.addEventListener("change", () => choose(field.value));
  form.elements.as_of.addEventListener("change", load);
  new ResizeObserver(() => nodes.length && !view.touched && fit()).observe(svg);
  load();
})();
