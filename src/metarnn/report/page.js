"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";

  // Light or dark: what the system says, until the reader says otherwise.
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const remembered = (value) => {
    try { // a page opened as a file may be refused any storage
      if (value) localStorage.setItem("metarnn-theme", value);
      return localStorage.getItem("metarnn-theme");
    } catch { return null; }
  };
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { button.textContent = dark() ? "light" : "dark"; };
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remembered(root.dataset.theme);
    label();
  });
  label();

  const element = (name, text, colour) => {
    const made = document.createElement(name);
    if (colour !== undefined) {
      const key = document.createElement("i");
      key.className = `c${colour}`;
      made.append(key);
    }
    made.append(text);
    return made;
  };

  const place = (tip, box, x, y) => {
    tip.hidden = false;
    const room = box.clientWidth - tip.offsetWidth;
    const left = x + 14 > room ? x - tip.offsetWidth - 14 : x + 14;
    tip.style.left = `${Math.max(0, Math.min(left, room))}px`;
    tip.style.top = `${Math.max(0, y)}px`;
  };

  const nearest = (places, x) => {
    let best = 0;
    places.forEach(([at], k) => {
      if (Math.abs(at - x) < Math.abs(places[best][0] - x)) best = k;
    });
    return best;
  };

  // A plot answers a pointer, a finger, and the arrow keys.
  for (const box of document.querySelectorAll("[data-plot]")) {
    const plot = JSON.parse(box.dataset.plot);
    const svg = box.querySelector("svg");
    const cursor = svg.querySelector(".cursor");
    const tip = box.querySelector(".tip");
    const stops = [...new Set(plot.series.flatMap((s) => s.at.map(([x]) => x)))].sort((a, b) => a - b);
    let stop = -1;

    const show = (x) => {
      const rows = plot.series.map((s) => ({ s, k: nearest(s.at, x) }))
        .filter(({ s, k }) => Math.abs(s.at[k][0] - x) < 24);
      if (!rows.length) return hide();
      const rule = document.createElementNS(SVG, "path");
      rule.setAttribute("d", `M${x},${plot.top} L${x},${plot.bottom}`);
      const dots = rows.map(({ s, k }) => {
        const dot = document.createElementNS(SVG, "circle");
        dot.setAttribute("cx", s.at[k][0]);
        dot.setAttribute("cy", s.at[k][1]);
        dot.setAttribute("r", 4);
        dot.setAttribute("class", `dot c${s.colour}`);
        return dot;
      });
      cursor.replaceChildren(rule, ...dots);
      const first = rows.reduce((a, b) =>
        Math.abs(b.s.at[b.k][0] - x) < Math.abs(a.s.at[a.k][0] - x) ? b : a);
      tip.replaceChildren(element("b", `${plot.x} ${first.s.x[first.k]}`),
        ...rows.map(({ s, k }) => element("span", `${s.name}: ${s.y[k]}`, s.colour)));
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      place(tip, box, x * scale, svg.offsetTop || svg.getBoundingClientRect().top - box.getBoundingClientRect().top);
    };
    const hide = () => {
      cursor.replaceChildren();
      tip.hidden = true;
      stop = -1;
    };
    const point = (event) => {
      const area = svg.getBoundingClientRect();
      const x = (event.clientX - area.left) * svg.viewBox.baseVal.width / area.width;
      stop = nearest(stops.map((s) => [s]), x);
      show(stops[stop]);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length };
      if (event.key === "Escape") return hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      stop = Math.max(0, Math.min(stops.length - 1, stop + moves[event.key]));
      show(stops[stop]);
    });
  }

  // A grid of squares, such as attention, or of dots: each has a title that says what it is.
  for (const box of document.querySelectorAll("[data-columns]")) {
    const svg = box.querySelector("svg");
    const squares = [...svg.querySelectorAll("rect, circle")].filter((r) => r.querySelector("title"));
    const words = squares.map((r) => r.querySelector("title").textContent);
    squares.forEach((r) => r.querySelector("title").remove()); // ours takes the place of its tip
    const tip = box.parentElement.querySelector(".tip");
    const columns = Number(box.dataset.columns);
    let here = -1;
    const hide = () => {
      squares[here]?.classList.remove("here");
      here = -1;
      tip.hidden = true;
    };
    const show = (k) => {
      hide();
      here = Math.max(0, Math.min(squares.length - 1, k));
      squares[here].classList.add("here");
      tip.replaceChildren(words[here]);
      const area = box.parentElement.getBoundingClientRect();
      const at = squares[here].getBoundingClientRect();
      place(tip, box.parentElement, at.right - area.left, at.bottom - area.top);
    };
    svg.addEventListener("pointermove", (event) => {
      const k = squares.indexOf(event.target);
      if (k >= 0) show(k); else hide();
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
      if (event.key === "Escape") return hide();
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(here < 0 ? 0 : here + moves[event.key]);
    });
  }
})();
