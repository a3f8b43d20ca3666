// A cursor over the timelines: what was going on at that time, in words.
for (const chart of document.querySelectorAll("svg[data-slice]")) {
  const series = JSON.parse(chart.dataset.series), slice = Number(chart.dataset.slice);
  const [left, width] = chart.dataset.plot.split(" ").map(Number);
  const cursor = chart.querySelector(".cursor"), readout = chart.parentElement.querySelector(".readout");
  const count = series[0].values.length, short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  chart.addEventListener("mousemove", (event) => {
    const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;
    const x = (event.clientX - box.left) / box.width * view.width;
    const at = Math.floor((x - left) / width * count);
    if (at < 0 || at >= count) return;
    const place = left + (at + 0.5) / count * width;
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.style.visibility = "visible";
    readout.textContent = short(at * slice) + " s: " + series.map((one) => one.name + " " + short(one.values[at])).join(", ");
  });
  chart.addEventListener("mouseleave", () => { cursor.style.visibility = "hidden"; readout.textContent = ""; });
}
