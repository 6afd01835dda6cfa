#pragma once

#include <string_view>

namespace etude::inline v0::detail {

/// The line colours are from Okabe and Ito (2008), adjusted to contrast with a light or dark background.
/// Dashes and markers distinguish lines without colour.
constexpr std::string_view run_light =
    "--c0:#0072b2;--c1:#d55e00;--c2:#00805d;--c3:#a8437a;--c4:#946500;--c5:#2b8cc4;--c6:#6b5bd2;--c7:#57606a;"
    "--good:#00805d;--bad:#c02626;--shade:#0072b2;";
constexpr std::string_view run_dark =
    "--c0:#56b4e9;--c1:#ff8c42;--c2:#1fc796;--c3:#dd8fbb;--c4:#e6b800;--c5:#8fd3ff;--c6:#b3a6ff;--c7:#a3adb8;"
    "--good:#1fc796;--bad:#ff7b72;--shade:#1f6fb0;";
constexpr std::string_view run_style = R"(
body{max-width:1400px;padding-bottom:3rem}
header{display:flex;flex-wrap:wrap;gap:.4rem 1.2rem;align-items:flex-start;justify-content:space-between}
header>div:first-child{flex:1 1 20rem;min-width:0}
h1{line-height:1.2}
.status{display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:center;color:var(--soft);font-size:.95rem}
.pill{display:inline-flex;align-items:center;gap:.4rem;font-weight:600;color:var(--ink)}
.pill::before{content:"";width:.7rem;height:.7rem;border-radius:50%;background:var(--c0)}
.pill[data-status=running]::before{animation:beat 1.6s ease-in-out infinite}
.pill[data-status=finished]::before{background:var(--good)}
.pill[data-status=stopped]::before{border-radius:2px;background:var(--c4)}
.pill[data-status=failed]::before{border-radius:0;background:var(--bad);clip-path:polygon(20% 0,50% 30%,80% 0,100% 20%,70% 50%,100% 80%,80% 100%,50% 70%,20% 100%,0 80%,30% 50%,0 20%)}
@keyframes beat{50%{opacity:.25}}
@media (prefers-reduced-motion:reduce){.pill::before{animation:none!important}}
.reason{border-left:3px solid var(--bad);padding:.4rem .8rem;margin:.6rem 0;background:var(--card);white-space:pre-wrap;overflow-wrap:anywhere}
.reason.stopped{border-color:var(--c4)}
progress{appearance:none;display:block;width:100%;height:6px;border:0;border-radius:3px;margin:.5rem 0 0;background:var(--grid);overflow:hidden}
progress::-webkit-progress-bar{background:var(--grid)}
progress::-webkit-progress-value{background:var(--c0);border-radius:3px}progress::-moz-progress-bar{background:var(--c0)}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0 0}
.tiles>div{flex:1 1 9.5rem;background:var(--card);border-radius:10px;padding:.6rem .9rem;min-width:0}
.tiles dt{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.tiles dd{font-size:1.45rem;font-weight:600;line-height:1.25;white-space:nowrap}
.tiles small{display:block;font-size:.78rem;font-weight:400;color:var(--soft);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.star{color:var(--good)}
.tools{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center;font-size:.88rem}
.bar{position:sticky;top:0;z-index:2;background:var(--ground);padding:.5rem 0;margin:.6rem 0 0;border-bottom:1px solid var(--grid)}
.tools label{display:inline-flex;gap:.4rem;align-items:center;color:var(--soft)}
.choice{display:inline-flex;align-items:center;gap:.45rem;border:0;margin:0;padding:0;color:var(--soft)}
.choice legend{float:left;padding:0}
.choice span{display:inline-flex;border:1px solid var(--grid);border-radius:7px;overflow:hidden}
.choice label{gap:0}.choice input{position:absolute;opacity:0;pointer-events:none}
.choice label b{font-weight:400;padding:.22rem .65rem;cursor:pointer;color:var(--ink)}
.choice input:checked+b{background:var(--c0);color:var(--ground);font-weight:600}
.choice input:focus-visible+b{outline:2px solid var(--chosen);outline-offset:-2px}
button,summary{font:inherit;color:inherit;cursor:pointer}
button.plain{background:none;border:1px solid var(--grid);border-radius:7px;padding:.22rem .65rem}
input[type=range]{accent-color:var(--c0);width:7.5rem}
input[type=search]{font:inherit;color:inherit;background:var(--ground);border:1px solid var(--grid);border-radius:7px;padding:.25rem .6rem;max-width:100%}
:is(button,summary,input,svg,a,.wide):focus-visible{outline:2px solid var(--chosen);outline-offset:2px;border-radius:4px}
.charts,.pair{margin-top:1rem}.charts{display:flex;flex-wrap:wrap;gap:1rem}
section.others{background:none;padding:0}
section>figure{margin:0}
figure{margin:0;min-width:0;display:flex;flex-direction:column}
.charts figure{flex:1 1 min(23rem,100%);background:var(--card);border-radius:10px;padding:.8rem .9rem .5rem}
.charts figure.large{flex:2 1 min(47rem,100%)}
figcaption{font-weight:600;overflow-wrap:anywhere}
.keys{display:flex;flex-wrap:wrap;gap:.1rem .9rem;margin:.15rem 0 .3rem;padding:0;list-style:none;font-size:.84rem}
.keys button{all:unset;cursor:pointer;display:inline-flex;gap:.4rem;align-items:center;border-radius:4px;max-width:100%}
.keys button:focus-visible{outline:2px solid var(--chosen);outline-offset:2px}
.keys svg,.swatch{flex:none;width:26px;height:12px}
.keys b{font-weight:600;font-variant-numeric:tabular-nums;min-width:3.4em}
.keys span{color:var(--soft);overflow-wrap:anywhere}
.keys [aria-pressed=false]{opacity:.42;text-decoration:line-through}
figure svg.chart{display:block;width:100%;flex:1 0 auto;height:0;touch-action:pan-y;cursor:crosshair}
.chart text{font-size:11.5px;fill:var(--soft);font-family:inherit;font-variant-numeric:tabular-nums}
.chart .grid{stroke:var(--grid);fill:none;shape-rendering:crispEdges}
.chart .line{fill:none;stroke-width:2;stroke-linejoin:round}
.chart .faint{opacity:.28;stroke-width:1.2}
.chart .band{stroke:none;opacity:.16}
.chart .cursor{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;pointer-events:none}
.chart .dot{stroke:var(--card);stroke-width:1.5}
.chart .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:5 4}
.chart .mark.failed{stroke:var(--bad)}.chart text.failed{fill:var(--bad)}
.chart .best{fill:var(--good);stroke:var(--card);stroke-width:1.5;paint-order:stroke}
.chart .afterwards{fill:var(--card);stroke:var(--its);stroke-width:var(--wide)}
.chart .broken{stroke:var(--bad);stroke-width:2;fill:none}
.chart .area{fill:var(--chosen);opacity:.15}
figure details{font-size:.84rem;color:var(--soft);margin:.1rem 0 0}figure summary{width:max-content}
.wide{overflow:auto;max-width:100%}
.wide:is(.before,.after):not(:focus-visible){mask-image:linear-gradient(to right,transparent,#000 var(--before),#000 calc(100% - var(--after)),transparent)}
details .wide{max-height:20rem}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .7rem .25rem 0;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th{font-weight:600}tbody th{font-weight:400}
th:first-child,td.w,th.w{text-align:left}td.w,th.w{white-space:normal;overflow-wrap:anywhere;min-width:9rem}
td.differs{font-weight:600}
.bars{margin-top:.5rem;width:100%;table-layout:fixed}.bars th{width:6.6rem}.bars td:nth-child(3){width:5.6rem}.bars td:nth-child(4){width:3.6rem}
.bars td:last-child{padding-right:0}
.bars i{display:block;height:.9rem;border-radius:0 3px 3px 0;background:var(--c0);min-width:1px}
.bars th,.bars td{border:0;padding-top:.12rem;padding-bottom:.12rem}
.pair{display:flex;flex-wrap:wrap;gap:1rem;align-items:start}
.pair section{flex:1 1 min(25rem,100%);margin:0}
.shaded td{padding:.25rem .6rem;border:0}
.matrix{border-collapse:separate;border-spacing:2px}
.matrix td{padding:0;border:0;width:1.75rem;min-width:1.75rem;height:1.75rem;font-size:.8rem;text-align:center;border-radius:4px}
.matrix th{border:0;padding:0 .5rem;text-align:right;max-width:9rem;overflow:hidden;text-overflow:ellipsis}.matrix thead th{text-align:center;padding:.1rem}
.matrix td.right{outline:2px solid var(--ink);outline-offset:-2px}
.matrix.dense{border-spacing:1px}.matrix.dense td{width:.9rem;min-width:.9rem;height:.9rem;font-size:0;border-radius:1px}.matrix.dense th{font-size:.6rem;padding:0 .2rem}
.samples{display:flex;flex-wrap:wrap;gap:.9rem;margin:.5rem 0}
.samples figure{margin:0;max-width:100%;font-size:.86rem}
.samples figure.text{flex:1 1 18rem}
.samples img{display:block;image-rendering:pixelated;min-width:84px;max-width:min(100%,256px);border-radius:4px;border:1px solid var(--grid)}
.samples pre{margin:0;padding:.5rem .7rem;background:var(--ground);border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.84rem;max-height:16rem;overflow:auto}
.samples figcaption{font-weight:400;color:var(--soft);margin-bottom:.2rem}
.chip{display:inline-block;background:var(--ground);border:1px solid var(--grid);border-radius:999px;padding:0 .6rem;margin:.1rem .3rem .1rem 0;font-size:.82rem}
.chip.writes{border-color:var(--c1)}.chip.writes::after{content:" writes";color:var(--c1)}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media (max-width:40rem){body{padding:.75rem .7rem 3rem}section{padding:.8rem .7rem}.tiles{gap:.5rem}
.bar{position:static}.tiles dd{font-size:1.2rem}h1{font-size:1.3rem}.bars th{width:5.6rem}
.matrix{border-spacing:1px}.matrix td{width:1.35rem;min-width:1.35rem;height:1.35rem;font-size:.74rem}.matrix th{padding:0 .25rem}}
@media print{.tools,figure details{display:none}body{padding:0}}
)";

}  // namespace etude::inline v0::detail
