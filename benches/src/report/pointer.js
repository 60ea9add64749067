// Shows, under the pointer, what share of calls each policy answered how fast.
(() => {
  const chart = document.getElementById("curves");
  const series = JSON.parse(document.getElementById("points").textContent);
  if (!chart || !series.length) return;
  const cursor = document.getElementById("cursor");
  const readout = document.getElementById("readout");
  const { left, right, nines } = chart.dataset;

  const time = (ms) =>
    ms >= 1000 ? (ms / 1000).toPrecision(3) + " s"
      : ms >= 1 ? ms.toPrecision(3) + " ms"
      : (ms * 1000).toPrecision(3) + " us";
  const at = (points, n) => (points.find((point) => point[0] >= n) || [])[1];

  const hide = () => {
    readout.hidden = true;
    cursor.style.visibility = "hidden";
  };
  chart.addEventListener("pointerleave", hide);
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * chart.viewBox.baseVal.width;
    const n = (x - left) / (right - left) * nines;
    if (n < 0 || n > +nines) return hide();
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.style.visibility = "visible";
    const share = 100 * (1 - 10 ** -n);
    const lines = series.map(({ policy, firm, points }) => {
      const ms = at(points, n);
      const line = document.createElement("div");
      const name = document.createElement("b");
      line.className = name.textContent = policy;
      line.append(name, ms === undefined ? "-" : time(ms) + (n > firm ? " (few samples)" : ""));
      return line;
    });
    const title = document.createElement("div");
    title.textContent = share.toFixed(Math.max(1, Math.ceil(n))) + " % of calls within";
    readout.replaceChildren(title, ...lines);
    readout.hidden = false;
    const space = event.clientX - box.left > box.width / 2;
    readout.style.left = space ? "" : event.clientX - box.left + 18 + "px";
    readout.style.right = space ? box.right - event.clientX + 18 + "px" : "";
  });
})();
