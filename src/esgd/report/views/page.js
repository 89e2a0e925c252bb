// The page: which runs are shown, which generation, and where the charts stand. Names are put in as text, never as markup.
'use strict';

(() => {
  const { colour, duration, spelt } = esgdCharts;
  const content = JSON.parse(document.getElementById('runs').textContent);
  const root = document.getElementById('views');
  const runs = new Map(); // by id, in the order they are listed
  const charts = new Map(); // by the name of the view
  const entries = new Map(); // of the list, by the run's id
  const at = { chosen: new Set(), asked: false, focus: null, k: null, playing: null };
  const SEVERAL = 6; // runs shown together unless asked for more
  const DARK = '(prefers-color-scheme: dark)';
  const FILTERED = 10; // runs from which on a filter helps
  const NAMED = 3; // faults that are told at once; their rows name the others

  const VIEWS = [
    { name: 'fitness', title: 'Fitness', wide: true, draw: (look) => esgdCharts.fitness(look, chosen()),
      about: 'Lower is better. A line is the fittest individual; its band reaches to the 15th best.' },
    { name: 'points', title: 'Every individual', draw: (look) => esgdCharts.points(look, focus(), generation(), kinds()), controls: true, ofOne: true,
      about: 'After the SGD step of one generation. Hollow: backed off. What is far off stands at the edge.' },
    { name: 'share', title: 'Offspring among the elites', draw: (look) => esgdCharts.share(look, breeding()),
      about: 'How many of the elites were born in the generation.', when: () => breeding().length > 0 },
    { name: 'tree', title: 'How the fittest came to be', wide: true, ofOne: true, draw: (look) => esgdCharts.tree(look, focus(), kinds()),
      about: () => 'From the founders on the left. Between two generations SGD, coloured by optimizer, hollow where it was backed off; squares are births. '
        + 'The heavy line is the line of fittest parents.' + (focus().tree?.cut ? ` ${focus().tree.cut} more branches are left out.` : ''),
      when: () => focus().tree?.individuals.length > 0 },
    { name: 'population', title: 'Population', draw: (look) => esgdCharts.population(look, chosen()),
      about: 'Individuals that are trained in a generation.', when: () => chosen().some((run) => run.lines.some((line) => line.trained !== run.lines[0].trained)) },
    { name: 'diversity', title: 'Diversity', draw: (look) => esgdCharts.diversity(look, chosen()),
      about: 'Root mean square of the distances between two individuals.', when: () => some((line) => line.diversity !== null) },
    { name: 'founders', title: 'Founding lineages alive', draw: (look) => esgdCharts.founders(look, chosen()),
      about: 'Individuals of the first population that still have descendants, through fittest parents.', when: () => some((line) => line.founders !== null) },
    { name: 'refused', title: 'Backed off', draw: (look) => esgdCharts.refused(look, chosen()),
      about: () => `SGD updates that made the fitness worse and were taken back.${some((line) => line.diverged) ? '' : ' None diverged.'}`, when: () => some((line) => line.refused !== null) },
    { name: 'diverged', title: 'Diverged', draw: (look) => esgdCharts.diverged(look, chosen()),
      about: 'Individuals whose SGD step ended in NaN or infinity; they go back to where they were.', when: () => some((line) => line.diverged) },
    { name: 'time', title: 'Time', draw: (look) => esgdCharts.time(look, focus()), about: 'Seconds of every generation.', ofOne: true },
    { name: 'samples', title: 'Ledger', draw: (look) => esgdCharts.samples(look, focus()), about: 'Samples through the network in every generation.', ofOne: true },
  ];

  // The runs that are shown; a colour belongs to the place among them.
  const chosen = () => [...at.chosen].map((id) => runs.get(id)).filter((run) => run?.lines.length).map((run, place) => ({ ...run, place }));
  const placed = (id) => [...at.chosen].filter((each) => runs.get(each)?.lines.length).indexOf(id);
  const breeding = () => chosen().filter((run) => run.lines.some((line) => line.share > 0));
  // The run that is looked at closer: one without a generation only if somebody asked for it.
  const focus = () => (at.asked || runs.get(at.focus)?.lines.length ? runs.get(at.focus) : chosen()[0] ?? runs.get(at.focus));
  const last = () => focus().lines.at(-1)?.k ?? 1;
  const generation = () => Math.min(at.k ?? last(), last()); // without a choice of one's own, the latest
  const kinds = () => esgdCharts.optimizers(focus());
  const some = (test) => chosen().some((run) => run.lines.some(test));
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, '');
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  // --- the frame, built once

  const list = element('ul', { class: 'runs', 'aria-label': 'Runs' });
  const filter = element('input', { type: 'search', class: 'filter', placeholder: 'Filter runs by name', 'aria-label': 'Filter runs by name', oninput: () => tell() });
  const summary = element('div', { class: 'summary' });
  const grid = element('div', { class: 'views' });
  const said = element('p', { class: 'said', role: 'status' });
  const slider = element('input', { type: 'range', min: 1, step: 1, 'aria-label': 'Generation',
    oninput: () => { stop(); walk(Number(slider.value)); } });
  const shown = element('output', { role: 'none' });
  const play = element('button', { type: 'button', 'aria-label': 'Play the generations', onclick: () => (at.playing ? stop() : start()) }, '▶');

  function build() {
    root.replaceChildren(said, filter, list, summary, grid);
    for (const view of VIEWS) {
      view.canvas = element('div', { class: 'chart', role: 'img' });
      view.caption = element('span', {});
      view.heading = element('h3', {}, view.title);
      view.figure = element('figure', { class: view.wide ? 'view wide' : 'view', id: `view-${view.name}` },
        view.heading, view.canvas,
        ...(view.controls ? [element('div', { class: 'controls' }, play, slider, shown)] : []),
        element('figcaption', {}, view.caption, ' ',
          element('button', { type: 'button', class: 'save', onclick: () => save(view, 'svg') }, 'SVG'), ' ',
          element('button', { type: 'button', class: 'save', onclick: () => save(view, 'png') }, 'PNG')));
      grid.append(view.figure);
    }
    new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(grid);
    matchMedia(DARK).addEventListener('change', show);
  }

  // --- what is shown

  function look() {
    const style = getComputedStyle(root);
    const [ink, soft, rule, card] = ['--ink', '--soft', '--rule', '--card'].map((name) => style.getPropertyValue(name).trim());
    return { ink, soft, rule, card, background: 'transparent', palette: matchMedia(DARK).matches ? 'dark' : 'light',
             family: style.fontFamily, size: 12, animate: !matchMedia('(prefers-reduced-motion: reduce)').matches };
  }

  const PAPER = { palette: 'light', ink: '#000', soft: '#333', rule: '#bbb', card: '#fff', background: '#fff', family: 'Helvetica, Arial, sans-serif', size: 13, animate: false };

  function draw(only = null) {
    const drawable = chosen().length > 0 && focus()?.lines.length > 0;
    grid.hidden = !drawable;
    if (!drawable) return;
    const colours = look();
    for (const view of VIEWS.filter((each) => !only || only.includes(each.name))) {
      view.figure.hidden = view.when ? !view.when() : false;
      if (view.figure.hidden) continue;
      if (!charts.has(view.name)) charts.set(view.name, echarts.init(view.canvas));
      if (view.name === 'tree') view.canvas.style.height = `${Math.min(720, Math.max(170, 90 + 22 * (1 + Math.max(...focus().tree.individuals.map((each) => each.lane)))))}px`;
      charts.get(view.name).resize();
      charts.get(view.name).setOption(view.draw(colours), { replaceMerge: ['series'] });
      if (view.ofOne && runs.size > 1) view.heading.textContent = `${view.title}: ${focus().label}`;
      view.caption.textContent = typeof view.about === 'function' ? view.about() : view.about;
      view.canvas.setAttribute('aria-label', `${view.title}. ${inWords(view)}`);
    }
    Object.assign(slider, { max: last(), value: generation() });
    shown.textContent = `generation ${generation()} of ${last()}`;
  }

  function inWords(view) {
    const ends = { fitness: 'best', share: 'share', population: 'trained', diversity: 'diversity', founders: 'founders', refused: 'refused' }[view.name];
    if (!ends) return view.caption.textContent;
    return chosen().map((run) => `${run.label}: from ${spelt(run.lines[0][ends])} to ${spelt(run.lines.at(-1)[ends])}.`).join(' ');
  }

  function tell() {
    const known = [...runs.values()];
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.hidden = known.length < 2;
    filter.hidden = known.length < FILTERED;
    entries.forEach((entry, id) => { if (!runs.has(id)) { entry.remove(); entries.delete(id); } });
    for (const run of [...chosen(), ...known]) {
      if (!entries.has(run.id)) list.append(enter(run)); // once there, it stays where it is: nobody loses a checkbox under the finger
      update(entries.get(run.id), run, wanted);
    }
    renew(summary, [...(chosen().length ? [facts()] : []), ...(focus()?.lines.length ? [leaders(), ...notes()] : [])]);
    said.textContent = words();
  }

  // New tables for old, with what was open, scrolled to or focused as it was.
  function renew(parent, children) {
    const parts = () => [...parent.querySelectorAll('details, summary, .scroll')];
    const before = parts().map((each) => ({ open: each.open, top: each.scrollTop, left: each.scrollLeft, focused: each === document.activeElement }));
    parent.replaceChildren(...children);
    parts().forEach((each, i) => {
      if (before[i]?.open) each.open = true;
      each.scrollTo(before[i]?.left ?? 0, before[i]?.top ?? 0);
      if (before[i]?.focused) each.focus();
    });
  }

  function words() {
    const faults = [...runs.values()].map((run) => run.fault).filter(Boolean);
    if (faults.length) return [...faults.slice(0, NAMED), ...(faults.length > NAMED ? [`So it is with ${faults.length - NAMED} more.`] : [])].join(' ');
    if (!runs.size) return content.live ? 'No run here yet. This page shows one as soon as its folder appears.' : '';
    if (!at.chosen.size) return 'Choose a run to look at.';
    return focus()?.lines.length ? '' : 'No finished generation yet.';
  }

  function enter(run) {
    const entry = element('li', {},
      element('label', {},
        element('input', { type: 'checkbox', onchange: (event) => choose(run.id, event.target.checked) }), element('i', {}),
        element('span', { class: 'name' }, run.label)),
      element('button', { type: 'button', 'aria-label': `Look closer at ${run.label}`, onclick: () => choose(run.id, true) }));
    entries.set(run.id, entry);
    return entry;
  }

  function update(entry, run, wanted) {
    const place = placed(run.id);
    const button = entry.querySelector('button');
    entry.className = run.id === at.focus ? 'focus' : '';
    entry.hidden = !at.chosen.has(run.id) && !wanted.every((word) => run.label.toLowerCase().includes(word));
    entry.querySelector('input').checked = at.chosen.has(run.id);
    entry.querySelector('i').style.background = place < 0 ? '' : colour(look(), place);
    button.setAttribute('aria-pressed', run.id === at.focus);
    button.textContent = state(run);
  }

  function state(run) {
    const k = run.lines.at(-1)?.k ?? run.k ?? 0;
    const way = run.generations ? `${k} of ${run.generations}` : `${k}`;
    return run.status ? `${way} · ${run.status}` : way;
  }

  function facts() {
    const tests = [...new Set(chosen().flatMap((run) => Object.keys(run.lines.at(-1).test)))];
    const held = (run) => {
      const count = run.lines.filter((line) => line.held).length;
      return count ? `held ${count} of ${run.lines.length}` : 'waived';
    };
    const columns = [
      ['run', (run) => run.label], ['seed', (run) => run.seed ?? '–'], ['generation', state],
      ['fitness', (run) => spelt(run.lines.at(-1).best)], ['elites', (run) => spelt(run.lines.at(-1).elites)],
      ...tests.map((name) => [`test ${name}`, (run) => spelt(Object.hasOwn(run.lines.at(-1).test, name) ? run.lines.at(-1).test[name] : null)]),
      ['guarantee', held], ['samples', (run) => sum(run.lines.map((line) => line.work)).toLocaleString('en')],
      ['time', (run) => duration(sum(run.lines.flatMap((line) => Object.values(line.seconds))))],
    ];
    return scroll('The runs', columns.map(([name]) => name), chosen().map((run) => columns.map(([, value]) => value(run))));
  }

  function leaders() {
    const rows = focus().lines.map((line) => [line.stage === 'evolution' ? line.k : `${line.k} (${line.stage})`, line.leader, spelt(line.best)]);
    return element('details', { class: 'leaders' }, element('summary', {}, `Who led: ${focus().lines.at(-1).leader}`),
      scroll(`The leader’s optimizer, ${focus().label}`, ['generation', 'optimizer', 'best fitness'], rows));
  }

  function notes() {
    const texts = [...new Set(focus().lines.flatMap((line) => [...line.notes, line.waiver && `No guarantee: ${line.waiver}`]))].filter(Boolean);
    return texts.length ? [element('details', { class: 'notes' }, element('summary', {}, `Health notes (${texts.length})`),
      element('ul', {}, ...texts.map((text) => element('li', {}, text))))] : [];
  }

  function scroll(caption, columns, rows) {
    return element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, element('table', {}, element('caption', {}, caption),
      element('thead', {}, element('tr', {}, ...columns.map((name) => element('th', { scope: 'col' }, name)))),
      element('tbody', {}, ...rows.map((row) => element('tr', {}, ...row.map((cell, i) => element(i ? 'td' : 'th', i ? {} : { scope: 'row' }, String(cell))))))));
  }

  // --- what a person does

  function choose(id, wanted) {
    stop();
    if (wanted) at.chosen.add(id);
    else at.chosen.delete(id);
    const [first] = at.chosen;
    at.focus = wanted ? id : at.chosen.has(at.focus) ? at.focus : first ?? null;
    at.k = null;
    at.asked = true;
    if (content.live) refresh();
    else show();
  }

  // To a generation; at the end the page follows the run again.
  function walk(k) {
    at.k = k >= last() ? null : k;
    draw(['points']);
  }

  function start() {
    walk(generation() >= last() ? 1 : generation());
    play.textContent = '❚❚';
    at.playing = setInterval(() => {
      walk(generation() + 1);
      if (at.k === null) stop();
    }, 700);
  }

  function stop() {
    clearInterval(at.playing);
    at.playing = null;
    play.textContent = '▶';
  }

  // A picture for a paper: white ground, a column or a page wide and, as PNG, with four pixels to a point.
  function save(view, kind) {
    const size = { width: view.wide ? 900 : 640, height: view.name === 'tree' ? view.canvas.clientHeight : 400 };
    const host = kind === 'svg' ? null : element('div', { style: `position:fixed;left:-9999px;width:${size.width}px;height:${size.height}px` });
    if (host) document.body.append(host);
    const chart = echarts.init(host, null, kind === 'svg' ? { renderer: 'svg', ssr: true, ...size } : { renderer: 'canvas', devicePixelRatio: 4, ...size });
    chart.setOption(view.draw(PAPER));
    if (kind === 'svg') keep(new Blob([chart.renderToSVGString()], { type: 'image/svg+xml' }), `${view.name}.svg`);
    else chart.renderToCanvas({ pixelRatio: 4, backgroundColor: '#fff' }).toBlob((blob) => keep(blob, `${view.name}.png`), 'image/png');
    chart.dispose();
    host?.remove();
  }

  function keep(blob, name) {
    const link = element('a', { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  // The figures that stand in the page already get the same two buttons.
  function furnish(figure, number) {
    const svg = figure.querySelector('svg');
    const text = () => new XMLSerializer().serializeToString(svg);
    const name = figure.dataset.name || `figure-${number + 1}`;
    const raster = () => {
      const image = new Image();
      const [, , width, height] = svg.getAttribute('viewBox').split(/\s+/).map(Number);
      image.onload = () => {
        const canvas = Object.assign(document.createElement('canvas'), { width: width * 5, height: height * 5 });
        const pen = canvas.getContext('2d');
        pen.fillStyle = '#fff';
        pen.fillRect(0, 0, canvas.width, canvas.height);
        pen.drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => keep(blob, `${name}.png`), 'image/png');
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text())}`;
    };
    figure.querySelector('figcaption').append(' ',
      element('button', { type: 'button', class: 'save', onclick: () => keep(new Blob([text()], { type: 'image/svg+xml' }), `${name}.svg`) }, 'SVG'), ' ',
      element('button', { type: 'button', class: 'save', onclick: raster }, 'PNG'));
  }

  // --- where runs come from

  function take(run) {
    const known = runs.get(run.id);
    const lines = run.after ? [...known.lines.filter((line) => line.k <= run.after), ...run.lines] : run.lines ?? known?.lines ?? [];
    const taken = { tree: null, ...known, ...run, lines };
    runs.set(run.id, { ...taken, label: taken.name });
  }

  function show() {
    tell();
    draw();
  }

  async function ask(path) {
    const answer = await fetch(path + (path.includes('?') ? '&' : '?') + new URLSearchParams({ token: content.token }), { cache: 'no-store' });
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  // What a reader would see of the list; if it is the same as before, nothing has to be drawn.
  const outline = () => JSON.stringify([[...runs.values()].map((run) => [run.id, run.k, run.status, run.fault, run.lines.length]), [...at.chosen], at.focus]);

  let waiting = null;
  let drawn = '';
  async function refresh() {
    clearTimeout(waiting);
    const silence = await catchUp().catch((error) => error.message);
    if (silence) said.textContent = `The server does not answer (${silence}). What is shown is what was known; the page asks again.`;
    else if (drawn !== outline()) { drawn = outline(); show(); } else said.textContent = words();
    const soon = !silence && [...runs.values()].some((run) => run.status === 'running') ? 1000 : 3000;
    waiting = setTimeout(refresh, document.hidden ? 10 * soon : soon);
  }

  // Ask for the list, and for what is new in the runs that are shown.
  async function catchUp() {
    const { runs: listed, chosen: proposed } = await ask('api/runs');
    [...runs.keys()].filter((id) => !listed.some((run) => run.id === id)).forEach((id) => { runs.delete(id); at.chosen.delete(id); });
    listed.forEach(take);
    if (!at.asked && !at.chosen.size) proposed.slice(0, SEVERAL).forEach((id) => at.chosen.add(id));
    if (!at.chosen.has(at.focus)) at.focus = [...at.chosen][0] ?? null;
    for (const run of [...at.chosen].map((id) => runs.get(id)).filter((each) => each.version !== each.seen)) {
      const after = run.age === run.read ? run.lines.at(-1)?.k ?? 0 : 0;
      take({ ...(await ask(`api/run?${new URLSearchParams({ id: run.id, after })}`)), seen: run.version, read: run.age });
    }
  }

  build();
  document.querySelectorAll('figure:not(.view)').forEach((figure, number) => { if (figure.querySelector('svg')) furnish(figure, number); });
  if (content.live) refresh();
  else {
    content.runs.forEach((run, i) => take({ id: String(i), ...run }));
    (content.chosen ?? [...runs.keys()]).slice(0, SEVERAL).forEach((id) => at.chosen.add(id));
    at.focus = content.focus ?? [...at.chosen][0] ?? null;
    show();
  }
})();
