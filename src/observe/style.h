#pragma once

#include <string_view>

namespace hawser::observe {

// The style of all pages. Colours follow the preference of the reader; contrasts are those of WCAG AA.
inline constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--back:#fff;--front:#1c2330;--soft:#5a6475;--line:#d9dee6;--row:#f5f7fa;--link:#0b57b0;--alarm:#b3261e;--accent:#1f6feb}
@media(prefers-color-scheme:dark){:root{--back:#12161c;--front:#e4e8ee;--soft:#9aa5b5;--line:#2c3441;--row:#1a2029;--link:#7ab3ff;--alarm:#ff8a80;--accent:#58a6ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--front);font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
a{color:var(--link)}
a:focus-visible,button:focus-visible,input:focus-visible,.scroll:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--back);padding:4px 8px}
header{border-bottom:1px solid var(--line);padding:10px 16px;display:flex;flex-wrap:wrap;gap:6px 18px;align-items:baseline}
header strong{font-size:17px}
nav{display:flex;flex-wrap:wrap;gap:2px 4px}
nav a{padding:3px 8px;border-radius:6px;text-decoration:none}
nav a:hover{background:var(--row)}
nav a[aria-current]{background:var(--accent);color:var(--back)}
main{padding:4px 16px 24px;max-width:1500px}
h1{font-size:22px;margin:14px 0 2px}
h2{font-size:16px;margin:22px 0 6px}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;max-width:100%;width:fit-content}
table{border-collapse:collapse;width:max-content;font-variant-numeric:tabular-nums}
th,td{padding:5px 12px;text-align:left;vertical-align:top;border-top:1px solid var(--line)}
tr:first-child>*{border-top:0}
tbody tr:nth-child(even){background:var(--row)}
th{font-weight:600;color:var(--soft);white-space:nowrap}
td{unicode-bidi:isolate;overflow-wrap:break-word;max-width:46em}
.n{text-align:right;white-space:nowrap}
.alarm{color:var(--alarm);font-weight:600}
.note,footer{color:var(--soft);font-size:13px}
.note{margin:6px 0 0;max-width:70em;overflow-wrap:anywhere}
footer{border-top:1px solid var(--line);padding:8px 16px}
input{font:inherit;font-size:13px;padding:2px 6px;border:1px solid var(--line);border-radius:6px;background:var(--back);color:var(--front)}
button{font:inherit;font-size:13px;padding:2px 10px;border:1px solid var(--line);border-radius:6px;background:var(--row);color:var(--front);cursor:pointer}
form{margin:0}
.graph svg{display:block;width:100%;min-width:760px;height:auto}
.graph{overflow-x:auto;margin:10px 0}
.trend{width:120px;height:22px;display:block}
.trend polyline{fill:none;stroke:var(--accent);stroke-width:1.5;vector-effect:non-scaling-stroke}
@media(max-width:640px){td{max-width:75vw}header{padding:8px 12px}main{padding:2px 12px 20px}th,td{padding:5px 8px}body{font-size:14px}nav{flex-wrap:nowrap;overflow-x:auto;max-width:100%}nav a{padding:6px 8px}}
)css";

// Replaces the content of the page every two seconds, unless the reader has stopped that, is elsewhere, or uses it.
inline constexpr std::string_view script = R"js(
(()=>{let on=true;const b=document.createElement('button');b.type='button';
const show=()=>{b.textContent=on?'Pause updates':'Resume updates'};show();b.onclick=()=>{on=!on;show()};
document.querySelector('header').append(b);
setInterval(async()=>{const m=document.getElementById('main');
if(!on||document.hidden||String(getSelection())||m.contains(document.activeElement))return;
try{const r=await fetch(location.href,{headers:{Accept:'text/html'}});if(!r.ok)return;
const d=new DOMParser().parseFromString(await r.text(),'text/html').getElementById('main');if(!d)return;
const x=[...m.querySelectorAll('.scroll')].map(e=>e.scrollLeft);m.innerHTML=d.innerHTML;
m.querySelectorAll('.scroll').forEach((e,i)=>{e.scrollLeft=x[i]||0})}catch{}},2000)})();
)js";

}  // namespace hawser::observe
