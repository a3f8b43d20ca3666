"use strict";
// The map: one square per cell, divided by what is in it. Rows begin at round addresses.
const data = id => JSON.parse(document.getElementById(id).textContent);
const map = data("cells"), classes = data("names"), canvas = document.getElementById("map"), tip = document.getElementById("tip");
const pageSize = Number(canvas.dataset.pageSize);
const hex = pfn => "0x" + (BigInt(pfn) * BigInt(pageSize)).toString(16);
const SIZE = 7, GAP = 1, LEFT = 100, COLUMNS = 128;
const rows = [];
for (const range of map.ranges) {
  const first = range.first_pfn / map.cell_pages;
  for (let at = 0; at < range.cells.length;) {
    const skip = (first + at) % COLUMNS, count = Math.min(COLUMNS - skip, range.cells.length - at);
    const last = rows[rows.length - 1], start = first + at - skip, part = { skip, cells: range.cells.slice(at, at + count) };
    if (last && last.start === start) last.parts.push(part);
    else rows.push({ start, gap: last !== undefined && start > last.start + COLUMNS, parts: [part] });
    at += count;
  }
}
let y = 4;
for (const row of rows) { if (row.gap) y += 12; row.y = y; y += SIZE + GAP; }
const width = LEFT + COLUMNS * (SIZE + GAP), height = Math.max(y, SIZE), scale = window.devicePixelRatio || 1;
canvas.width = width * scale; canvas.height = height * scale;
canvas.style.width = width + "px"; canvas.style.height = height + "px";
let only = null;
const draw = () => {
  const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "11px ui-monospace, monospace";
  g.textBaseline = "middle";
  let label = -100;
  for (const row of rows) {
    g.globalAlpha = 1;
    if (row.gap || row.y - label >= 36) {
      g.fillStyle = style.getPropertyValue("--soft");
      g.fillText(hex(row.start * map.cell_pages), 0, row.y + SIZE / 2 + .5);
      label = row.y;
    }
    for (const part of row.parts) part.cells.forEach((cell, i) => {
      const x = LEFT + (part.skip + i) * (SIZE + GAP);
      g.globalAlpha = 1;
      g.fillStyle = style.getPropertyValue("--hole");
      g.fillRect(x, row.y, SIZE, SIZE);
      let at = 0;
      cell.forEach((count, k) => {
        if (!count) return;
        const [name, color] = classes[k], part = SIZE * count / map.cell_pages;
        g.globalAlpha = only === null || only === name ? 1 : .13;
        g.fillStyle = color;
        g.fillRect(x, row.y + at, SIZE, part);
        at += part;
      });
    });
  }
};
const buttons = document.querySelectorAll("button[data-class]");
for (const button of buttons) button.onclick = () => {
  only = only === button.dataset.class ? null : button.dataset.class;
  for (const other of buttons) other.setAttribute("aria-pressed", String(other.dataset.class === only));
  draw();
};
draw();
matchMedia("(prefers-color-scheme: dark)").onchange = draw;
canvas.onmousemove = event => {
  const box = canvas.getBoundingClientRect(), column = Math.floor((event.clientX - box.left - LEFT) / (SIZE + GAP));
  const row = rows.find(row => event.clientY - box.top >= row.y && event.clientY - box.top < row.y + SIZE + GAP);
  const part = row && row.parts.find(part => column >= part.skip && column < part.skip + part.cells.length);
  if (!part || column < 0) { tip.style.display = "none"; return; }
  const line = (tag, text, name) => { const e = document.createElement(tag); e.append(text); if (name) e.className = name; return e; };
  const first = (row.start + column) * map.cell_pages;
  tip.replaceChildren(line("b", hex(first)), line("div", "PFN 0x" + first.toString(16) + " and " + (map.cell_pages - 1) + " more", "quiet"));
  part.cells[column - part.skip].map((count, k) => [count, classes[k]]).filter(([count]) => count).sort((a, b) => b[0] - a[0])
    .forEach(([count, [name, color]]) => {
      const swatch = line("i", "", "swatch");
      swatch.style.background = color;
      const text = line("div", swatch);
      text.append(name + ": " + count + " pages");
      tip.append(text);
    });
  tip.style.display = "block";
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
};
canvas.onmouseleave = () => { tip.style.display = "none"; };
