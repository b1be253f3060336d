"use strict";
// Everything is readable without this script: it adds the theme switch, tooltips and the zoom of range trees.
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`); };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  system.addEventListener("change", name);
  name();

  const links = new Map([...document.querySelectorAll("nav a")].map(link => [link.hash.slice(1), link]));
  if (links.size && "IntersectionObserver" in window) {
    const seen = new IntersectionObserver(entries => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    for (const id of links.keys()) { const part = document.getElementById(id); if (part) seen.observe(part); }
  }

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("aria-hidden", "true"); // the box's own label says the same
  tip.hidden = true;
  document.body.append(tip);
  const show = (box, x, y) => {
    const title = document.createElement("b");
    title.textContent = box.dataset.path;
    tip.replaceChildren(title, box.dataset.tip);
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - size.width - 8))}px`;
    tip.style.top = `${y + 18 + size.height > innerHeight ? Math.max(8, y - size.height - 12) : y + 18}px`;
  };

  for (const chart of document.querySelectorAll(".icicles")) {
    const boxes = [...chart.querySelectorAll(".box")];
    const span = Number(chart.dataset.span);
    const out = chart.querySelector(".zoom-out");
    const axis = chart.querySelector(".icicle-axis");
    const ticks = (low, high) => { // in percent of the whole; as in range_trees.py
      const from = low * span / 100, length = (high - low) * span / 100;
      let step = 10 ** Math.floor(Math.log10(length / 2));
      step *= [1, 2, 5].find(factor => length / (step * factor) < 10);
      const digits = Math.max(0, -Math.floor(Math.log10(step)));
      axis.replaceChildren();
      for (let ms = Math.ceil(from / step - 1e-9) * step; ms <= from + length + step * 1e-9; ms += step) {
        const tick = document.createElement("span");
        tick.style.left = `${(ms - from) / length * 100}%`;
        tick.textContent = ms.toFixed(digits) + (axis.childElementCount ? "" : " ms");
        axis.append(tick);
      }
    };
    let zoomed = null;
    const edge = (box, end) => Number(box.dataset.left) + (end ? Number(box.dataset.width) : 0);
    const twins = box => boxes.filter(other => other.dataset.path === box.dataset.path);
    const view = (low, high) => {
      const scale = 100 / (high - low);
      for (const box of boxes) {
        box.style.left = `${Math.max(-50, Math.min((edge(box) - low) * scale, 150))}%`;
        box.style.width = `${Math.min(edge(box, true) - Math.max(edge(box), low - 50 / scale), 200 / scale) * scale}%`;
        const text = box.firstElementChild; // the name stays in sight while its box begins left of the view
        text.style.marginLeft = edge(box) < low && edge(box, true) > low ? `${Math.min(low - edge(box), 50 / scale) / Math.min(edge(box, true) - Math.max(edge(box), low - 50 / scale), 200 / scale) * 100}%` : "";
      }
      ticks(low, high);
    };
    const zoom = box => {
      const all = box ? twins(box) : [];
      zoomed = box;
      out.hidden = !box;
      box ? view(Math.min(...all.map(one => edge(one))), Math.max(...all.map(one => edge(one, true)))) : view(0, 100);
    };
    out.addEventListener("click", () => { const back = zoomed; zoom(null); back?.focus(); });
    for (const box of boxes) {
      box.addEventListener("click", () => zoom(box === zoomed ? null : box));
      box.addEventListener("mousemove", event => show(box, event.clientX, event.clientY));
      box.addEventListener("mouseenter", () => twins(box).forEach(one => one.classList.add("twin")));
      box.addEventListener("mouseleave", () => { tip.hidden = true; twins(box).forEach(one => one.classList.remove("twin")); });
      box.addEventListener("focus", () => {
        if (!box.matches(":focus-visible")) return;
        const place = box.getBoundingClientRect();
        show(box, Math.max(place.left, 0), place.bottom - 12);
      });
      box.addEventListener("blur", () => { tip.hidden = true; });
      box.addEventListener("keydown", event => {
        const own = boxes.filter(other => other.parentElement === box.parentElement), at = own.indexOf(box), depth = Number(box.dataset.depth);
        const level = other => Number(other.dataset.depth);
        const next = {
          ArrowRight: () => own.slice(at + 1).find(other => level(other) === depth),
          ArrowLeft: () => own.slice(0, at).reverse().find(other => level(other) === depth),
          ArrowDown: () => own[at + 1] && level(own[at + 1]) > depth ? own[at + 1] : null,
          ArrowUp: () => own.slice(0, at).reverse().find(other => level(other) < depth),
          Home: () => own[0], End: () => own[own.length - 1],
        }[event.key];
        if (event.key === "Escape") { zoom(null); tip.hidden = true; }
        const target = next?.();
        if (!next) return;
        event.preventDefault();
        if (!target) return;
        box.tabIndex = -1;
        target.tabIndex = 0;
        target.focus();
      });
    }
  }
})();
