#include "report/page_style.h"

namespace hawser::report {

// Okabe and Ito chose the colours of the series so that colour-blind readers can distinguish them
// (https://jfly.uni-koeln.de/color/). They are lighter in the dark style.
std::string_view page_style() noexcept {
  return R"(
:root { color-scheme: light dark; --page: #f6f7f9; --panel: #fff; --text: #1b2330; --soft: #5b6676; --line: #dfe3e9;
  --good: #0f9d76; --bad: #e0702a; --c0: #0067b8; --c1: #8a94a3; --c2: #d55e00; --c3: #009e73; --c4: #b5499a;
  --c5: #b58900; --c6: #2aa5d8; --c7: #5d4bb3; }
@media (prefers-color-scheme: dark) {
:root { --page: #10141a; --panel: #181e27; --text: #e6eaf0; --soft: #98a4b5; --line: #2b3442;
  --good: #1fb58c; --bad: #d9692a; --c0: #4fa8f0; --c1: #8b97a8; --c2: #ff8a3d; --c3: #35c99b; --c4: #e383c8;
  --c5: #e0b93f; --c6: #6fd0f5; --c7: #a294f2; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 36px 24px 64px; }
h1 { font-size: 30px; margin: 0; letter-spacing: -0.02em; }
h2 { font-size: 21px; margin: 44px 0 4px; letter-spacing: -0.01em; }
h3 { font-size: 15px; margin: 26px 0 8px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 86ch; }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin: 20px 0 0; }
.tile b { display: block; font-size: 25px; line-height: 1.25; letter-spacing: -0.02em; color: var(--c0); }
.tile small { font-size: 15px; font-weight: 600; letter-spacing: 0; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
.plots { display: grid; margin-bottom: 12px; grid-template-columns: repeat(auto-fill, minmax(min(370px, 100%), 1fr)); gap: 12px; }
.maps { display: flex; flex-wrap: wrap; gap: 12px; align-items: flex-start; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 11.5px; }
svg text.title { fill: var(--text); font-size: 13.5px; font-weight: 600; }
svg .middle { text-anchor: middle; } svg .end { text-anchor: end; }
svg .grid { stroke: var(--line); stroke-width: 1; }
.line polyline { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.line circle { fill: var(--c); stroke: var(--panel); stroke-width: 1; }
.line .spread { stroke: var(--c); stroke-width: 1.2; opacity: 0.7; }
.bars rect { fill: var(--c); } .bars .spread { stroke: var(--text); stroke-width: 1.2; } .bars .mark-line { stroke: var(--c2);
  stroke-width: 2; } svg text.value { fill: var(--text); }
.badge { display: inline-block; background: var(--bad); color: #fff; border-radius: 6px; padding: 1px 9px; font-size: 13px;
  font-weight: 600; } td.text, th.text { text-align: left; white-space: normal; }
th.wide { min-width: 330px; } th.medium { min-width: 230px; }
@media (min-width: 820px) { .plots .wide { grid-column: span 2; } }
.dashed polyline { stroke-dasharray: 3 5; stroke-width: 1.7; } .dashed { opacity: 0.85; }
.series-0 { --c: var(--c0); } .series-1 { --c: var(--c1); } .series-2 { --c: var(--c2); } .series-3 { --c: var(--c3); }
.series-4 { --c: var(--c4); } .series-5 { --c: var(--c5); } .series-6 { --c: var(--c6); } .series-7 { --c: var(--c7); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 10px; font-size: 13.5px; }
.legend i { display: inline-block; width: 18px; height: 3px; border-radius: 2px; margin-right: 7px; vertical-align: 4px;
  background: var(--c); }
.legend i.dots { background: repeating-linear-gradient(90deg, var(--soft) 0 3px, transparent 3px 6px); }
.scroll { overflow-x: auto; padding: 4px 0; } .panel + .panel.scroll { margin-top: 12px; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; }
.scroll table { width: 100%; }
th, td { padding: 4px 12px; text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; font-size: 12.5px; }
thead th { border-bottom: 1px solid var(--line); }
tr.first td { border-top: 1px solid var(--line); }
td.name, th.name { text-align: left; } td.name i { display: inline-block; width: 9px; height: 9px; border-radius: 50%;
  margin-right: 8px; background: var(--c); }
td.bar { width: 26%; min-width: 120px; } td.bar i { display: block; height: 9px; border-radius: 3px; background: var(--c); }
.error { color: var(--bad); font-weight: 600; }
.map td { min-width: 58px; text-align: center; font-weight: 600; border: 2px solid var(--panel); border-radius: 6px;
  padding: 9px 8px; } .map td.none { font-weight: 400; color: var(--soft); }
.map th { padding: 4px 8px; text-align: center; } .map th.name { text-align: right; }
.map h3 { margin: 0 0 6px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px; margin: 8px 0 0; font-size: 13.5px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { background: #fff; } .panel { break-inside: avoid; } }
)";
}

std::string_view standalone_svg_style() noexcept {
  return R"(
svg { --panel: #fff; --text: #1b2330; --soft: #5b6676; --line: #dfe3e9; --c0: #0067b8; --c1: #8a94a3; --c2: #d55e00;
  --c3: #009e73; --c4: #b5499a; --c5: #b58900; --c6: #2aa5d8; --c7: #5d4bb3; background: #fff;
  font-family: system-ui, "DejaVu Sans", sans-serif; }
text { fill: var(--soft); font-size: 11.5px; } text.title { fill: var(--text); font-size: 13.5px; font-weight: 600; }
text.value { fill: var(--text); } .middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--line); stroke-width: 1; }
.line polyline { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
.line circle { fill: var(--c); stroke: var(--panel); stroke-width: 1; }
.line .spread { stroke: var(--c); stroke-width: 1.2; opacity: 0.7; }
.dashed polyline { stroke-dasharray: 3 5; stroke-width: 1.7; } .dashed { opacity: 0.85; }
.bars rect { fill: var(--c); } .bars .spread { stroke: var(--text); stroke-width: 1.2; } .bars .mark-line {
  stroke: var(--c2); stroke-width: 2; }
.series-0 { --c: var(--c0); } .series-1 { --c: var(--c1); } .series-2 { --c: var(--c2); } .series-3 { --c: var(--c3); }
.series-4 { --c: var(--c4); } .series-5 { --c: var(--c5); } .series-6 { --c: var(--c6); } .series-7 { --c: var(--c7); }
)";
}

}  // namespace hawser::report
