// Moves a cursor over the charts and writes the values at that point below them.
for (const chart of document.querySelectorAll("svg[data-step]")) {
  const series = [...chart.querySelectorAll("desc")].map((one) => [one.dataset.name, one.dataset.values.split(" ").map(Number)]);
  const [left, right] = chart.dataset.plot.split(" ").map(Number), step = Number(chart.dataset.step), end = Number(chart.dataset.end);
  const cursor = chart.querySelector(".cursor"), readout = chart.nextElementSibling;
  const short = (value) => value.toLocaleString("en", { maximumSignificantDigits: 3 });
  chart.addEventListener("mousemove", (event) => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    const at = Math.floor((x - left) / (right - left) * end / step);
    if (at < 0 || !series.length || at >= series[0][1].length) return;
    cursor.setAttribute("transform", "translate(" + (left + (at + 0.5) * step / end * (right - left)) + ")");
    cursor.style.visibility = "visible";
    readout.textContent = short(at * step) + " s: " + series.map(([name, values]) => name + " " + short(values[at])).join(", ");
  });
  chart.addEventListener("mouseleave", () => { cursor.style.visibility = "hidden"; readout.textContent = ""; });
}
