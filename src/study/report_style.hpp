#pragma once

#include <string_view>

namespace etude::inline v0::detail {

/// The colours are from Okabe and Ito (2008).
constexpr std::string_view report_light =
    "--complete:#0072b2;--best:#009e73;--pruned:#c77700;--failed:#a8437a;--running:#57606a;";
constexpr std::string_view report_dark =
    "--complete:#56b4e9;--best:#1fc796;--pruned:#e69f00;--failed:#dd8fbb;--running:#a3adb8;";
constexpr std::string_view report_style = R"(
.two{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:1rem}.two section{margin:0}
.counts{display:flex;flex-wrap:wrap;gap:.5rem 1.6rem;padding:0;margin:.4rem 0;list-style:none}
.counts b{font-size:1.5rem;display:block;font-variant-numeric:tabular-nums}
.big dd{font-weight:600}
svg.chart{display:block;width:100%;height:auto;overflow:visible}
svg.chart:focus-visible,.wide:focus-visible,button:focus-visible{outline:2px solid var(--chosen);outline-offset:2px}
svg text{fill:var(--soft);font-size:16px;font-family:inherit}svg text.axis{fill:var(--ink)}
.parallel text{font-size:14px}
.halo{paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round;pointer-events:none}
.grid{stroke:var(--grid);fill:none}.rail{stroke:var(--soft);stroke-width:1.5;fill:none;pointer-events:none}
.m{--own:var(--complete);fill:var(--own);stroke:var(--card);stroke-width:1;cursor:pointer}
.m.best{--own:var(--best)}.m.pruned{--own:var(--pruned)}.m.running{--own:var(--running);fill:none;stroke:var(--own);stroke-width:2}
.m.failed{--own:var(--failed);fill:none;stroke:var(--own);stroke-width:2.5}
.l{fill:none;stroke:var(--complete);stroke-width:1.6;stroke-opacity:.7;stroke-linejoin:round;cursor:pointer}
.l.best{stroke:var(--best);stroke-width:3.5;stroke-opacity:1}.l.pruned{stroke:var(--pruned)}
.l.failed{stroke:var(--failed);stroke-dasharray:5 4}.l.running{stroke:var(--running)}
.v0{stroke:var(--v0)}.v1{stroke:var(--v1)}.v2{stroke:var(--v2)}.v3{stroke:var(--v3)}.v4{stroke:var(--v4)}
.v5{stroke:var(--v5)}.v6{stroke:var(--v6)}.v7{stroke:var(--v7)}.v8{stroke:var(--v8)}.v9{stroke:var(--v9);stroke-width:2.4;stroke-opacity:1}
.so-far{stroke:var(--best);stroke-width:2;fill:none}
.l.on{stroke:var(--chosen);stroke-width:4.5;stroke-opacity:1}.m.on{stroke:var(--chosen);stroke-width:4;paint-order:stroke}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.85rem;color:var(--soft);margin:.5rem 0 0}
.legend span{display:inline-flex;align-items:center;gap:.35rem}.legend svg{width:1rem;height:1rem}.legend .m{cursor:auto}
i.so-far{width:1.4rem;border-top:3px solid var(--best)}
i.scale{width:8rem;height:.7rem;border-radius:3px;background:linear-gradient(90deg,var(--v0),var(--v3),var(--v6),var(--v9))}
.bars{width:100%;border-collapse:collapse;font-size:.9rem;table-layout:fixed}
.bars th{text-align:right;font-weight:400;padding:.16rem .6rem .16rem 0;width:38%;overflow-wrap:anywhere}
.bars td:last-child{width:3.6rem;text-align:right;font-variant-numeric:tabular-nums}
.bars i{display:block;height:.95rem;min-width:1px;border-radius:0 3px 3px 0;background:var(--complete)}
.wide{overflow-x:auto}.curves svg.chart{max-width:960px;margin:0 auto}
.all{max-height:70vh;overflow:auto}
.all table{border-collapse:separate;border-spacing:0;font-size:.86rem;font-variant-numeric:tabular-nums;white-space:nowrap}
.all th,.all td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--grid)}
.all .w{text-align:left}.all thead th{position:sticky;top:0;background:var(--card);padding:0}
.all button{all:unset;cursor:pointer;padding:.45rem .7rem;font-weight:600;white-space:nowrap}
.all button:focus-visible{outline:2px solid var(--chosen);outline-offset:-2px}
.all [aria-sort=ascending] button::after{content:" \25b2"}.all [aria-sort=descending] button::after{content:" \25bc"}
.all tbody tr{cursor:pointer}.all tbody tr:hover{background:var(--grid)}.all tr.on td{background:var(--chosen);color:#000}
.all tr.top td:first-child{color:var(--best);font-weight:700}
#chosen{position:fixed;inset:auto 0 0 0;max-height:32vh;overflow:auto;margin:0;padding:.6rem 1.25rem;background:var(--ground);
border-top:2px solid var(--chosen);font-size:.9rem;overflow-wrap:anywhere}
#chosen:empty{display:none}#chosen span{display:inline-block;margin-right:1.1rem}#chosen small{color:var(--soft);font-size:.85em}
@media (max-width:860px){.two{grid-template-columns:minmax(0,1fr)}}
@media (max-width:600px){body{padding:.75rem .6rem 7rem}section{padding:.75rem .6rem}svg.chart text{font-size:23px}
svg.parallel text{font-size:17px}.chart .m{stroke:var(--own);stroke-width:4}.chart .m.on{stroke:var(--chosen);stroke-width:9}
.chart .l{stroke-width:2.5}.bars th{width:42%}}
)";

/// Highlights a trial in all charts and in the table, by pointer or arrow keys, and sorts the table. It reads
/// text only from the table's cells and writes it only as text, never as HTML.
constexpr std::string_view report_script = R"(
'use strict';(()=>{
const body=document.querySelector('.all tbody'),bar=document.getElementById('chosen');
const heads=[...document.querySelectorAll('.all thead th')];let pinned=null,seen=null;
const rows=()=>[...body.rows],row=t=>rows().find(r=>r.dataset.t===t);
function show(t){
 if(t===seen)return;seen=t;
 for(const e of document.querySelectorAll('.on'))e.classList.remove('on');
 bar.textContent='';if(t===null)return;
 for(const e of document.querySelectorAll('[data-t="'+CSS.escape(t)+'"]')){
  e.classList.add('on');if(e.classList.contains('l')||e.classList.contains('m'))e.parentNode.insertBefore(e,e.parentNode.querySelector('.rail'));}
 const r=row(t);if(!r)return;
 [...r.cells].forEach((c,i)=>{if(!c.textContent)return;const s=document.createElement('span'),n=document.createElement('small');
  n.textContent=heads[i].textContent+' ';s.append(n,c.textContent);bar.append(s,' ');});}
function near(e){
 for(const d of [0,3,6,10])for(const [x,y] of [[0,-d],[0,d],[d,0],[-d,0]]){
  const f=document.elementFromPoint(e.clientX+x,e.clientY+y),g=f&&f.closest('.chart [data-t]');if(g)return g.dataset.t;}
 return null;}
for(const svg of document.querySelectorAll('svg.chart')){
 const drawn=new Set([...svg.querySelectorAll('[data-t]')].map(e=>e.dataset.t));
 svg.addEventListener('pointermove',e=>{if(e.pointerType==='mouse')show(near(e)??pinned);});
 svg.addEventListener('pointerleave',()=>show(pinned));
 svg.addEventListener('click',e=>{pinned=near(e);show(pinned);});
 svg.addEventListener('keydown',e=>{
  const own=rows().filter(r=>drawn.has(r.dataset.t)),at=own.findIndex(r=>r.dataset.t===pinned);
  const to={ArrowRight:at+1,ArrowDown:at+1,ArrowLeft:at-1,ArrowUp:at-1,Home:0,End:own.length-1}[e.key];
  if(e.key==='Escape')pinned=null;else if(to===undefined||!own.length)return;
  else pinned=own[Math.min(Math.max(to,0),own.length-1)].dataset.t;
  e.preventDefault();show(pinned);});}
body.addEventListener('click',e=>{const r=e.target.closest('tr');pinned=r.dataset.t===pinned?null:r.dataset.t;show(pinned);});
document.addEventListener('keydown',e=>{if(e.key==='Escape'){pinned=null;show(null);}});
heads.forEach((h,i)=>h.firstElementChild.addEventListener('click',()=>{
 const sign=h.getAttribute('aria-sort')==='ascending'?-1:1,of=r=>r.cells[i].dataset.v??r.cells[i].textContent;
 for(const o of heads)o.removeAttribute('aria-sort');h.setAttribute('aria-sort',sign>0?'ascending':'descending');
 const number=r=>{const v=r.cells[i].dataset.v;return v===undefined?NaN:Number(v);};
 body.append(...rows().sort((a,b)=>{const p=of(a),q=of(b),x=number(a),y=number(b);
  if(p===''||q==='')return (p==='')-(q==='');
  if(isNaN(x)||isNaN(y))return isNaN(x)&&isNaN(y)?sign*p.localeCompare(q):isNaN(x)-isNaN(y);
  return x===y?0:sign*(x<y?-1:1);}));}));
})();
)";

}  // namespace etude::inline v0::detail
