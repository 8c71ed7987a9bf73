"""The style of a report: letters, colours for light and dark, and widths that fit any screen."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f5f6f8; --line: #dde1e7; --ink: #1c2430; --soft: #586374;
  --main: #2a6a9e; --other: #b4602a; --groove: #e8ebef;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --panel: #1a2028; --line: #2c343f; --ink: #e5e9ee; --soft: #9ba7b6;
    --main: #6fb1e2; --other: #e2a06c; --groove: #262d37;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif;
}
main { max-width: 52rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1, h2, h3 { line-height: 1.25; font-weight: 600; overflow-wrap: anywhere; }
h1 { font-size: 1.9rem; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 3.25rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
p { margin: .5rem 0 1rem; overflow-wrap: anywhere; }
.lead, .note, figcaption, th, dt, summary { color: var(--soft); }
.lead { margin: 0 0 1.75rem; }
.note { font-size: .9rem; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.75rem, 1fr)); gap: .6rem; margin: 0; }
dl div { background: var(--panel); border-radius: .5rem; padding: .7rem .9rem; min-width: 0; }
dt { font-size: .82rem; }
dd { margin: .1rem 0 0; font-size: 1.1rem; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
figure { margin: 1rem 0 1.25rem; }
figcaption { font-size: .9rem; margin-bottom: .5rem; }
.key { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin: 0 .4em 0 0; background: var(--main); }
.key.other { background: var(--other); margin-left: 1.1em; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .32rem 1.5rem .32rem 0; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--line); }
th { font-weight: 500; font-size: .85rem; }
tbody th { color: var(--ink); font-weight: 400; font-size: inherit; }
.number { text-align: right; white-space: nowrap; }
tr > :last-child { padding-right: 0; }
details { margin: .5rem 0 1rem; }
summary { cursor: pointer; font-size: .9rem; padding: .2rem 0; }
summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--main); outline-offset: 2px; }
.family { background: var(--panel); border-radius: .5rem; padding: .8rem 1rem; margin: .75rem 0; }
.family h4 { margin: 0 0 .4rem; font-size: .95rem; font-weight: 600; }
.family ol { list-style: none; margin: 0; padding: 0; }
.family li { display: flex; gap: .9rem; padding: .4rem 0; border-top: 1px solid var(--line); }
.family .far { flex: none; width: 1.6rem; text-align: right; color: var(--soft); font-variant-numeric: tabular-nums; }
.family img { flex: none; align-self: flex-start; width: 6rem; max-height: 6rem; object-fit: contain; border-radius: .25rem; }
.family .what { min-width: 0; overflow-wrap: anywhere; }
.family .text { margin: .15rem 0 0; font-size: .85rem; line-height: 1.45; color: var(--soft); }
bdi { unicode-bidi: isolate; }
svg { display: block; overflow: visible; }
.beside { display: flex; }
.beside svg { flex: none; }
.beside svg + svg { flex: 1; min-width: 0; }
svg text { font-size: 12px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .name { font-size: 14px; fill: var(--ink); }
svg .value { font-size: 14px; }
.bar { fill: var(--main); }
rect.other { fill: var(--other); }
.groove { fill: var(--groove); }
.grid { stroke: var(--line); }
.base { stroke: var(--soft); }
.line { stroke-width: 2; stroke-linecap: round; }
.line.main { stroke: var(--main); }
.line.other { stroke: var(--other); }
.dot.main { fill: var(--main); }
.dot.other { fill: var(--other); }
@media (max-width: 30rem) {
  main { padding: 1.5rem 1rem 3rem; }
  th, td { padding-right: 1rem; }
}
@media print { .family, dl div { break-inside: avoid; } }
"""
