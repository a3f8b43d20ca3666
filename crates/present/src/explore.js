"use strict";
// Lists that are searched, filtered and sorted; flame graphs that zoom; links that show in place what they lead to.
document.documentElement.classList.add("script");
const pressed = (buttons, one) => buttons.forEach(button => button.setAttribute("aria-pressed", String(button === one)));
// "7 12-40": a number is found in a range, too.
const inRanges = (text, number) => text.split(" ").some(range => { const [from, to] = range.split("-").map(Number); return number >= from && number <= (to ?? from); });
for (const list of document.querySelectorAll(".explore")) {
  const rows = [...list.querySelectorAll("tbody tr, ol > li")], texts = new Map();
  const input = list.querySelector("input"), output = list.querySelector("output"), buttons = list.querySelectorAll("button[data-only]");
  let only = "";
  const matches = (row, words) => {
    if (only && !row.dataset.kind.split(" ").includes(only)) return false;
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    const pids = row.querySelector(".pids");
    return words.every(word => texts.get(row).includes(word) || (pids && /^\d+$/.test(word) && inRanges(pids.textContent, Number(word))));
  };
  const update = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(word => word);
    let count = 0;
    for (const row of rows) { row.hidden = !matches(row, words); count += row.hidden ? 0 : 1; }
    output.textContent = count === rows.length ? "" : count + " of " + rows.length;
  };
  input.oninput = update;
  for (const button of buttons) button.onclick = () => {
    only = only === button.dataset.only ? "" : button.dataset.only;
    pressed(buttons, only ? button : null);
    update();
  };
  list.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const down = head.getAttribute("aria-sort") === "ascending", body = list.querySelector("tbody");
      const key = row => { const cell = row.cells[column]; return cell.dataset.v ?? cell.textContent; };
      const compare = (a, b) => a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : String(a).localeCompare(String(b));
      rows.sort((a, b) => (down ? -1 : 1) * compare(key(a), key(b)));
      list.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    };
  });
}
for (const graph of document.querySelectorAll(".flames")) {
  const flames = [...graph.children], places = flames.map(one => [parseFloat(one.style.left), parseFloat(one.style.width)]);
  flames.forEach((chosen, which) => chosen.onclick = () => {
    const [from, width] = places[which], top = parseFloat(chosen.style.top);
    flames.forEach((one, at) => {
      const [left, own] = places[at], outer = parseFloat(one.style.top) < top;
      const apart = left >= from + width - .0005 || left + own <= from + .0005;
      one.style.display = apart ? "none" : "";
      one.classList.toggle("outer", outer);
      one.style.left = (outer ? 0 : (left - from) / width * 100) + "%";
      one.style.width = (outer ? 100 : own / width * 100) + "%";
    });
  });
}
// A link to a stack shows it below what was clicked; one to a row makes it visible.
const reveal = place => {
  for (let at = place; at; at = at.parentElement) { if (at.tagName === "DETAILS") at.open = true; at.hidden = false; }
};
document.addEventListener("click", event => {
  const link = event.target.closest && event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const place = document.getElementById(link.getAttribute("href").slice(1));
  if (!place) return;
  const here = link.closest("section") && link.closest("section").querySelector(".shown");
  if (!here || !place.classList.contains("stack")) return reveal(place);
  event.preventDefault();
  const title = document.createElement("h3"), close = document.createElement("button"), text = place.querySelector("pre").cloneNode(true);
  title.append(place.querySelector("summary").textContent, close);
  close.append("close");
  close.onclick = () => { here.hidden = true; };
  here.replaceChildren(title, text);
  here.hidden = false;
  document.querySelectorAll(".lit").forEach(lit => lit.classList.remove("lit"));
  link.classList.add("lit");
  here.scrollIntoView({ block: "nearest" });
});
const revealTarget = () => { const place = location.hash && document.getElementById(location.hash.slice(1)); if (place) { reveal(place); place.scrollIntoView(); } };
addEventListener("hashchange", revealTarget);
revealTarget();
