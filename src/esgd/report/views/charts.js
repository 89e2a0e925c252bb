// Pure functions from a run's digest to what ECharts draws. Nothing here touches the page.
'use strict';

const esgdCharts = (() => {
  // Okabe and Ito's colours, told apart with any colour vision; shapes and dashes repeat what colour says.
  const PALETTES = {
    light: ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'],
    dark: ['#56b4e9', '#e69f00', '#2bbd8f', '#dd9dc2', '#f0e442', '#e8743b'],
  };
  const DASHES = ['solid', 'dashed', 'dotted'];
  const SHAPES = ['circle', 'triangle', 'diamond', 'rect', 'pin', 'arrow'];
  const PHASES = { sgd: 'SGD', fitness: 'fitness', evolution: 'evolution', checkpoint: 'checkpoint', other: 'other' };
  const SAMPLES = { sgd_forward: 'SGD forward', sgd_backward: 'SGD backward', fitness_sgd: 'fitness, SGD step', fitness_evolution: 'fitness, evolution' };
  const MANY = 40; // points on a line beyond which markers are noise

  const colour = (look, i) => PALETTES[look.palette][i % PALETTES.light.length];
  const dash = (i) => DASHES[i % DASHES.length];
  const shape = (i) => SHAPES[i % SHAPES.length];
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  function spelt(value) {
    if (value === null || value === undefined) return '–';
    if (value === 0) return '0';
    const size = Math.abs(value);
    return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  function duration(seconds) {
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 120) return `${Math.round(seconds)} s`;
    return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  // What all generations of a run have in common, worked out once: its optimizers in the order of their names, so that a
  // colour means the same in every view, and the ranges of learning rate and fitness.
  const known = new WeakMap();
  function extent(run) {
    if (!known.has(run.lines)) {
      const points = run.lines.flatMap((line) => line.points);
      const drawn = points.filter(drawable);
      known.set(run.lines, {
        optimizers: [...new Set(points.map((point) => point[1]))].sort(),
        fitness: limits(drawn.map((point) => point[3])),
        rates: decades(drawn.map((point) => point[2])),
      });
    }
    return known.get(run.lines);
  }

  const drawable = (point) => point[2] > 0 && point[3] !== null;
  const optimizers = (run) => extent(run).optimizers;

  function frame(look, { x, y, more = {} }) {
    const axis = {
      nameTextStyle: { color: look.soft, fontSize: look.size },
      axisLabel: { color: look.soft, fontSize: look.size, hideOverlap: true },
      axisLine: { lineStyle: { color: look.rule } },
      splitLine: { lineStyle: { color: look.rule, opacity: 0.6 } },
    };
    return {
      backgroundColor: look.background,
      animation: look.animate,
      animationDuration: 250,
      animationDurationUpdate: 450,
      textStyle: { fontFamily: look.family, color: look.ink },
      grid: { left: 8, right: 20, top: 52, bottom: 24, containLabel: true },
      legend: {
        top: 0, left: 0, type: 'scroll', itemWidth: 22, itemHeight: 10, icon: 'roundRect',
        textStyle: { color: look.ink, fontSize: look.size }, pageTextStyle: { color: look.soft }, pageIconColor: look.soft,
      },
      tooltip: {
        trigger: 'axis', confine: true, backgroundColor: look.card, borderColor: look.rule,
        textStyle: { color: look.ink, fontSize: 12 }, valueFormatter: spelt,
      },
      xAxis: { type: 'value', nameLocation: 'middle', nameGap: 26, ...axis, splitLine: { show: false }, ...x },
      yAxis: {
        type: 'value', scale: true, nameLocation: 'end', nameGap: 10, ...axis, ...y,
        nameTextStyle: { color: look.soft, fontSize: look.size, align: 'left' },
        axisLabel: { ...axis.axisLabel, formatter: spelt, showMinLabel: y.ends, showMaxLabel: y.ends },
      },
      ...more,
    };
  }

  const generations = (runs) => ({
    name: 'generation', minInterval: 1,
    min: 1, max: runs.reduce((most, run) => Math.max(most, run.lines.at(-1)?.k ?? 0), 2),
  });

  function lines(look, runs, value, y, extra = {}) {
    return {
      ...frame(look, { x: generations(runs), y }),
      series: runs.map((run) => ({
        type: 'line', name: run.label, data: run.lines.map((line) => [line.k, value(line)]),
        showSymbol: run.lines.length < MANY, symbol: shape(run.place), symbolSize: 7, connectNulls: false,
        itemStyle: { color: colour(look, run.place) },
        lineStyle: { color: colour(look, run.place), type: dash(run.place), width: 2 }, ...extra,
      })),
    };
  }

  // Figure 1: the fittest, and a band to the 15th best.
  function fitness(look, runs) {
    const option = lines(look, runs, (line) => line.best, { name: 'fitness' }, { z: 3 });
    for (const run of runs) {
      const band = { type: 'line', name: run.label, stack: run.id, stackStrategy: 'all', showSymbol: false, silent: true, tooltip: { show: false } };
      option.series.push(
        { ...band, data: run.lines.map((line) => [line.k, line.best]), lineStyle: { opacity: 0 } },
        {
          ...band, lineStyle: { opacity: 0 }, areaStyle: { color: colour(look, run.place), opacity: 0.16 },
          data: run.lines.map((line) => [line.k, line.top === null ? null : line.top - line.best]),
        },
      );
    }
    option.tooltip.formatter = (items) => {
      const k = items[0]?.value[0];
      const rows = runs.map((run) => [run, run.lines.find((line) => line.k === k)]).filter(([, line]) => line);
      return `generation ${k}<br>` + rows.map(([run, line]) =>
        `${swatch(look, run.place)} ${escaped(run.label)}: <b>${spelt(line.best)}</b> … ${spelt(line.top)}, elites ${spelt(line.elites)}`).join('<br>');
    };
    return option;
  }

  const swatch = (look, place) =>
    `<span style="display:inline-block;width:.7em;height:.7em;border-radius:50%;background:${colour(look, place)}"></span>`;

  // Figure 2.
  const share = (look, runs) => lines(look, runs, (line) => line.share, { name: '% of the elites', min: 0, max: 100 });
  const refused = (look, runs) => lines(look, runs, (line) => line.refused, { name: '% of the SGD updates', min: 0, max: 100 });
  const population = (look, runs) =>
    lines(look, runs, (line) => line.trained, { name: 'individuals', min: 0, minInterval: 1 }, { step: 'end' });
  const diversity = (look, runs) => lines(look, runs, (line) => line.diversity, { name: 'distance', min: 0 });
  const founders = (look, runs) =>
    lines(look, runs, (line) => line.founders, { name: 'lineages', min: 0, minInterval: 1 }, { step: 'end' });

  // Every individual of one generation: learning rate × fitness. The axes stay while generations pass.
  function points(look, run, k, kinds) {
    const line = run.lines.find((each) => each.k === k);
    const { fitness: [low, high], rates: [slow, fast] } = extent(run);
    const option = frame(look, {
      x: { type: 'log', name: 'learning rate', min: slow, max: fast,
           axisLabel: { color: look.soft, fontSize: look.size, formatter: (value) => Number(value.toPrecision(2)).toString() } },
      y: { name: 'fitness after SGD', min: low, max: high, ends: false },
      more: { animationDurationUpdate: look.animate ? 600 : 0 },
    });
    option.tooltip.trigger = 'item';
    delete option.legend.icon; // the shapes of the points
    option.tooltip.formatter = ({ data }) => data.id === undefined ? '' :
      `${escaped(data.id)}<br>${escaped(data.optimizer)}, learning rate ${spelt(data.value[0])}<br>` +
      `fitness ${spelt(data.fitness)}${data.kept ? '' : ', backed off'}`;
    option.series = kinds.map((kind, i) => ({
      type: 'scatter', name: kind, symbol: shape(i), symbolSize: run.population > 200 ? 6 : 11,
      itemStyle: { color: colour(look, i) },
      data: (line ? line.points : []).filter((point) => point[1] === kind && drawable(point)).map((point) => ({
        id: point[0], optimizer: kind, kept: point[4], fitness: point[3],
        value: [point[2], Math.min(Math.max(point[3], low), high)], // whoever is far off stands at the edge
        itemStyle: point[4] ? { opacity: 0.85 } : { color: 'transparent', borderColor: colour(look, i), borderWidth: 1.5, opacity: 0.7 },
      })),
    }));
    return option;
  }

  // From the best to the worst, but an individual that blew up must not flatten all others.
  function limits(values) {
    if (!values.length) return [0, 1];
    const sorted = [...values].sort((a, b) => a - b);
    const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
    const reach = at(0.75) - sorted[0];
    const high = Math.min(sorted[sorted.length - 1], at(0.75) + reach);
    const margin = 0.05 * (high - sorted[0]) || Math.abs(high) * 0.05 || 1;
    return [sorted[0] - margin, high + margin].map((value) => Number(value.toPrecision(4)));
  }

  function decades(values) {
    if (!values.length) return [0.1, 1];
    const ends = [Math.min, Math.max].map((end) => Math.log10(values.reduce((a, b) => end(a, b))));
    return [10 ** Math.floor(ends[0]), 10 ** Math.max(Math.floor(ends[0]) + 1, Math.ceil(ends[1]))];
  }

  // The family tree: lanes from left to right, SGD between two generations, births on them.
  function tree(look, run, kinds) {
    const { individuals, births, steps } = run.tree;
    const gap = [null, null];
    const last = Math.max(1, ...individuals.map((each) => each.until));
    const lived = (each) => [[each.born, each.lane], [each.until === last ? last : Math.max(each.born, each.until - 0.5), each.lane], gap];
    const joined = (birth) => [[birth.k - 0.5, birth.from], [birth.k, birth.to], gap];
    const option = frame(look, {
      x: { name: 'generation', minInterval: 1, min: 0, max: last },
      y: { show: false, inverse: true, min: -0.7, max: Math.max(1, ...individuals.map((each) => each.lane)) + 0.7 },
    });
    option.tooltip.trigger = 'item';
    delete option.legend.icon; // the shapes of the points
    option.tooltip.formatter = ({ data }) => data.words || '';
    const path = { type: 'line', showSymbol: false, silent: true, tooltip: { show: false } };
    const thin = { color: look.soft, width: 1, opacity: 0.55 };
    const main = { color: look.ink, width: 2.5 };
    option.series = [
      ...[[false, thin], [true, main]].map(([heavy, lineStyle]) => ({
        ...path, lineStyle,
        data: [...individuals.filter((each) => each.main === heavy).flatMap(lived), ...births.filter((birth) => birth.main === heavy).flatMap(joined)],
      })),
      ...kinds.map((kind, i) => ({
        type: 'scatter', name: kind, symbol: shape(i), symbolSize: 10, z: 4, itemStyle: { color: colour(look, i) },
        data: steps.filter((step) => step.optimizer === kind).map((step) => ({
          value: [step.k - 0.5, step.lane],
          itemStyle: step.kept ? {} : { color: look.card, borderColor: colour(look, i), borderWidth: 1.5 },
          words: `${escaped(step.id)}, generation ${step.k}<br>${escaped(kind)}, learning rate ${spelt(step.lr)}<br>fitness ${spelt(step.fitness)}${step.kept ? '' : ', backed off'}`,
        })),
      })),
      {
        type: 'scatter', name: 'birth', symbol: 'rect', symbolSize: 6, z: 5, itemStyle: { color: look.ink },
        data: individuals.map((each) => ({
          value: [each.born, each.lane],
          words: each.born ? `${escaped(each.id)}${each.kind ? `, ${escaped(each.kind)}` : ''}, born in generation ${each.born}` : `founder ${escaped(each.id)}`,
        })),
      },
    ];
    return option;
  }

  // Seconds of every generation by phase.
  function time(look, run) {
    const option = frame(look, { x: { ...generations([run]), type: 'category', min: null, max: null, data: run.lines.map((line) => String(line.k)) }, y: { name: 'seconds', scale: false } });
    option.tooltip.valueFormatter = (value) => duration(value || 0);
    const phases = [...new Set([...Object.keys(PHASES), ...run.lines.flatMap((line) => Object.keys(line.seconds))])];
    option.series = phases.map((phase, i) => ({
      type: 'bar', stack: 'all', name: Object.hasOwn(PHASES, phase) ? PHASES[phase] : phase, itemStyle: { color: colour(look, i) }, barCategoryGap: '20%',
      data: run.lines.map((line) => line.seconds[phase] || 0),
    }));
    return option;
  }

  // The ledger: samples of every generation by what they went through the network for.
  function samples(look, run) {
    const option = time(look, run);
    option.yAxis.name = 'samples';
    option.tooltip.valueFormatter = (value) => value.toLocaleString('en');
    option.series = Object.entries(SAMPLES).map(([kind, name], i) => ({
      type: 'bar', stack: 'all', name, itemStyle: { color: colour(look, i) }, barCategoryGap: '20%',
      data: run.lines.map((line) => line.ledger[kind] || 0),
    }));
    return option;
  }

  // Individuals that blew up.
  const diverged = (look, runs) => lines(look, runs, (line) => line.diverged, { name: 'individuals', min: 0, minInterval: 1 });

  return { colour, diverged, diversity, duration, escaped, fitness, founders, optimizers, points, population, refused, samples, share, spelt, time, tree };
})();
