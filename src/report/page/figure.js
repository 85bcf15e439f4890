/* figure.js - what figures share: sections, controls, tables, the tooltip, and a canvas over time. */

/* --- sections: drawn again when the width or the colours change ------------------------------------------------- */
const figures = []; /* {node, draw, width}: plots on the page */

function section(id, title, note) {
  const node = html(
    'section',
    {class: 'card', id, 'aria-label': title},
    html('h2', {}, title),
    note ? html('p', {class: 'note'}, note) : null,
  );
  document.getElementById('main').append(node);
  return node;
}

/* A plot that knows its width. draw(node, width) fills the emptied node. keep: it outlives the run that is shown. */
function plot(parent, draw, label, keep = false) {
  const node = html('div', {class: 'plot', role: label ? 'group' : undefined, 'aria-label': label});
  parent.append(node);
  const figure = {
    node,
    keep,
    width: 0,
    draw() {
      node.replaceChildren();
      draw(node, figure.width);
    },
  };
  figures.push(figure);
  return figure;
}

const widths = new ResizeObserver(entries => {
  for (const entry of entries) {
    const figure = figures.find(f => f.node === entry.target),
      width = Math.floor(entry.contentRect.width);
    if (figure && width > 0 && width !== figure.width) {
      figure.width = width;
      figure.draw();
    }
  }
});
function showFigure(f) {
  f.width = Math.floor(f.node.clientWidth) || 320;
  f.draw();
  widths.observe(f.node);
}
const showFigures = () => figures.forEach(showFigure);
/* Those of a run go; what is of the plan stays. */
function clearFigures() {
  const kept = figures.filter(f => f.keep && f.node.isConnected);
  widths.disconnect();
  figures.splice(0, figures.length, ...kept);
  document.getElementById('main').replaceChildren();
  document.getElementById('sections').replaceChildren();
}
const redraw = () => figures.forEach(f => f.draw());

/* --- frames ----------------------------------------------------------------------------------------------------- */
const frame = (width, height) => svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`});
/* A line of the grid with its figure: at height y, or at x from top to bottom with the figure at `foot`. */
const levelLine = (left, right, y, label) => [
  svg('line', {class: 'grid', x1: left, x2: right, y1: y, y2: y}),
  svg('text', {class: 'soft', x: left - 6, y: y + 4, 'text-anchor': 'end'}, label),
];
const uprightLine = (x, top, bottom, foot, label, anchor = 'middle') => [
  svg('line', {class: 'grid', x1: x, x2: x, y1: top, y2: bottom}),
  svg('text', {class: 'soft', x, y: foot, 'text-anchor': anchor}, label),
];

/* --- controls --------------------------------------------------------------------------------------------------- */
function choice(label, options, value, change) {
  /* options: [[value, text]] */
  const node = html(
    'select',
    {onchange: () => change(node.value)},
    options.map(([v, t]) => html('option', {value: v, selected: String(v) === String(value)}, t)),
  );
  return html('label', {}, label, node);
}
function segments(label, options, value, change) {
  const node = html('span', {class: 'seg', role: 'group', 'aria-label': label});
  const buttons = options.map(([v, t]) =>
    html(
      'button',
      {
        type: 'button',
        class: 'button',
        'aria-pressed': String(v === value),
        onclick: () => {
          buttons.forEach((b, i) => b.setAttribute('aria-pressed', String(options[i][0] === v)));
          change(v);
        },
      },
      t,
    ),
  );
  node.append(...buttons);
  return node;
}
const adviceList = lines => html('ul', {class: 'advice'}, lines.map(line => html('li', {}, line)));
const controls = (...children) => html('div', {class: 'controls'}, ...children);
/* What a button is called aloud has its label in it, so that those who speak to it can say what they see. */
const spoken = (label, title) =>
  label.length === 1 || title.toLowerCase().includes(label.toLowerCase()) ? title : `${label}: ${title}`;
const button = (label, title, click) =>
  html('button', {type: 'button', class: 'button', 'aria-label': spoken(label, title), title, onclick: click}, label);

function legend(entries) {
  /* [[colour or svg node, text]] */
  return html(
    'ul',
    {class: 'legend'},
    entries.map(([c, t]) => html('li', {}, typeof c === 'string' ? html('i', {style: `background:${c}`}) : c, t)),
  );
}
/* The scale of ramp(), between what its ends mean. */
const rampScale = (low, high) =>
  html(
    'li',
    {},
    low,
    html('i', {style: `width:90px;background:linear-gradient(90deg,${RAMP.map(c => `rgb(${c})`).join(',')})`}),
    high,
  );
function table(head, rows, textColumns = []) {
  const cls = i => (textColumns.includes(i) ? 'text' : undefined);
  return html(
    'div',
    {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'table'},
    html(
      'table',
      {},
      html(
        'thead',
        {},
        html(
          'tr',
          {},
          head.map((h, i) => html('th', {scope: 'col', class: cls(i)}, h)),
        ),
      ),
      html(
        'tbody',
        {},
        rows.map(r =>
          html(
            'tr',
            {},
            r.map((c, i) => (c instanceof Node ? c : html('td', {class: cls(i)}, c))),
          ),
        ),
      ),
    ),
  );
}
const folded = (title, make) => {
  /* made when it is first opened, and again by renew() */
  const node = html(
    'details',
    {
      ontoggle: () => {
        if (node.open && node.childElementCount === 1) node.append(make());
      },
    },
    html('summary', {}, title),
  );
  node.renew = () => {
    if (node.childElementCount > 1) node.lastElementChild.remove();
    if (node.open) node.append(make());
  };
  return node;
};

/* --- the tooltip: content is {title, rows: [[key, value]]} ------------------------------------------------------ */
const tip = document.getElementById('tip');
function showTip(content, x, y) {
  if (!content) return hideTip();
  tip.replaceChildren(
    html('b', {}, content.title),
    html(
      'dl',
      {},
      (content.rows || []).filter(Boolean).flatMap(([k, v]) => [html('dt', {}, k), html('dd', {}, v)]),
    ),
  );
  tip.hidden = false;
  const w = tip.offsetWidth,
    h = tip.offsetHeight,
    left = x + 14 + w > innerWidth - 8 ? x - w - 14 : x + 14;
  tip.style.left = `${Math.min(Math.max(left, 8), Math.max(innerWidth - w - 8, 8))}px`;
  const below = y + 14 + h > innerHeight - 8 ? y - h - 14 : y + 14;
  tip.style.top = `${Math.min(Math.max(below, 8), Math.max(innerHeight - h - 8, 8))}px`;
}
function hideTip() {
  tip.hidden = true;
}
addEventListener('scroll', hideTip, {passive: true});
addEventListener('keydown', e => {
  if (e.key === 'Escape') hideTip();
});

/* A mark of an SVG figure: hover and keyboard focus show the same. */
function marked(node, content) {
  const at = () => {
    const b = node.getBoundingClientRect();
    showTip(content(), b.left + b.width / 2, b.top + b.height / 2);
  };
  return fill(
    node,
    {
      tabindex: 0,
      role: 'img',
      'aria-label': (c =>
        `${c.title}: ${(c.rows || [])
          .filter(Boolean)
          .map(r => r.join(' '))
          .join(', ')}`)(content()),
      onpointermove: e => showTip(content(), e.clientX, e.clientY),
      onpointerleave: hideTip,
      onfocus: at,
      onblur: hideTip,
    },
    [],
  );
}

/* --- canvas ----------------------------------------------------------------------------------------------------- */
function canvas(width, height, label) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const node = html('canvas', {
    width: Math.round(width * ratio),
    height: Math.round(height * ratio),
    style: `width:${width}px;height:${height}px`,
    tabindex: 0,
    role: 'img',
    'aria-label': label,
  });
  const ctx = node.getContext('2d');
  ctx.scale(ratio, ratio);
  ctx.font = '11px system-ui, sans-serif';
  ctx.textBaseline = 'middle';
  return {node, ctx};
}

/* Rows over time with zoom and pan. view: {from, to} in seconds, kept by the caller between drawings.
 * spec: {rows: [{label, height}], to, view, label, paint(ctx, row, top, height, x), hit(row, time) -> tooltip content,
 * home} - the view that a double click comes back to, by default all from 0 to `to`. */
function timeCanvas(parent, width, spec) {
  const longest = Math.max(...spec.rows.map(r => r.label.length)),
    left = longest ? Math.min(longest * 6.6 + 12, 92) : 2,
    axis = 24,
    gap = 3;
  const tops = [];
  let height = 2;
  for (const row of spec.rows) {
    tops.push(height);
    height += row.height + gap;
  }
  const {node, ctx} = canvas(width, height + axis, spec.label);
  const view = spec.view,
    home = spec.home || {from: 0, to: spec.to},
    inner = width - left - 6;
  const x = t => left + ((t - view.from) / (view.to - view.from)) * inner,
    time = px => view.from + ((px - left) / inner) * (view.to - view.from);
  let cursor = null;

  function paint() {
    const ink = colour('soft'),
      grid = colour('grid');
    ctx.clearRect(0, 0, width, height + axis);
    ctx.textAlign = 'center';
    for (const [t, label] of timeTicks(view.from, view.to, inner / 110)) {
      ctx.fillStyle = grid;
      ctx.fillRect(Math.round(x(t)), 0, 1, height);
      ctx.fillStyle = ink;
      const half = ctx.measureText(label).width / 2;
      ctx.fillText(label, Math.min(Math.max(x(t), left + half), width - half - 1), height + 11);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, inner, height);
    ctx.clip();
    spec.rows.forEach((row, i) => spec.paint(ctx, i, tops[i], row.height, x));
    if (cursor !== null) {
      ctx.fillStyle = colour('ink');
      ctx.globalAlpha = 0.5;
      ctx.fillRect(Math.round(cursor), 0, 1, height);
    }
    ctx.restore();
    ctx.textAlign = 'left';
    ctx.fillStyle = ink;
    spec.rows.forEach((row, i) => row.height >= 8 && ctx.fillText(row.label, 2, tops[i] + row.height / 2 + 0.5));
  }
  function zoom(factor, at) {
    const span = Math.min(Math.max((view.to - view.from) * factor, spec.to * 1e-6), spec.to),
      share = (at - view.from) / (view.to - view.from);
    view.from = Math.min(Math.max(at - share * span, 0), spec.to - span);
    view.to = view.from + span;
    paint();
  }
  function pan(by) {
    const d = Math.min(Math.max(by, -view.from), spec.to - view.to);
    view.from += d;
    view.to += d;
    paint();
  }
  function point(e) {
    const box = node.getBoundingClientRect(),
      px = e.clientX - box.left,
      py = e.clientY - box.top;
    const row = tops.findIndex((t, i) => py >= t && py < t + spec.rows[i].height + gap);
    if (row < 0 || px < left) {
      cursor = null;
      hideTip();
      return paint();
    }
    cursor = px;
    paint();
    showTip(spec.hit(row, time(px), (view.to - view.from) / inner), e.clientX, e.clientY);
  }
  const reset = () => {
    [view.from, view.to] = [home.from, home.to];
    paint();
  };
  let drag = null;
  fill(
    node,
    {
      onpointerdown: e => {
        drag = {x: e.clientX, moved: false};
        node.setPointerCapture(e.pointerId);
      },
      onpointerup: () => {
        drag = null;
      },
      onpointermove: e => {
        if (!drag) return point(e);
        const d = e.clientX - drag.x;
        if (Math.abs(d) > 2) {
          drag.moved = true;
          hideTip();
          pan((-d / inner) * (view.to - view.from));
          drag.x = e.clientX;
        }
      },
      onpointerleave: () => {
        cursor = null;
        hideTip();
        paint();
      },
      ondblclick: reset,
      onkeydown: e => {
        const span = view.to - view.from,
          middle = (view.to + view.from) / 2;
        const act = {
          ArrowLeft: () => pan(-span / 6),
          ArrowRight: () => pan(span / 6),
          '+': () => zoom(0.6, middle),
          '=': () => zoom(0.6, middle),
          '-': () => zoom(1 / 0.6, middle),
          Home: () => pan(-spec.to),
          End: () => pan(spec.to),
          0: reset,
        }[e.key];
        if (act) {
          e.preventDefault();
          act();
        }
      },
    },
    [],
  );
  node.addEventListener(
    'wheel',
    e => {
      if (!e.ctrlKey && !e.metaKey && !e.shiftKey) return; /* plain wheel scrolls the page */
      e.preventDefault();
      zoom(Math.exp((e.deltaY || e.deltaX) * 0.0022), time(e.clientX - node.getBoundingClientRect().left));
    },
    {passive: false},
  );
  parent.append(node);
  paint();
  return {
    zoom: factor => zoom(factor, (view.from + view.to) / 2),
    reset,
    paint,
  };
}
const zoomButtons = handle =>
  html(
    'span',
    {class: 'seg', role: 'group', 'aria-label': 'Zoom'},
    button('−', 'Zoom out', () => handle().zoom(1 / 0.6)),
    button('+', 'Zoom in', () => handle().zoom(0.6)),
    button('all', 'Show the whole step', () => handle().reset()),
  );
const zoomHelp = 'Drag to move, Ctrl + wheel or + and − to zoom, double click for all.';
