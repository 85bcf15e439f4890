# plots/whatif.gp - a what-if study: the named parts of every point as stacked bars, its throughput above each.
# gnuplot -e "csv='rows.csv'; out='plot.svg'; study='nic'; unit='step time, s'; parts='gemm ...'" plots/whatif.gp
# The CSV is the one that `moesim whatif --csv` writes: point in column 2, tokens/s/GPU in 12, value in 17, parts from column 18 on, in s.
if (out[strlen(out)-3:*] eq ".png") { set terminal pngcairo size 1100,640 } else { set terminal svg size 1100,640 dynamic background rgb 'white' }
set output out
set datafile separator comma
set datafile missing ""
colours = "#1f5f8b #3a86c8 #7fb3dd #b7d4ea #dbe9f4 #8c2d04 #cc4c02 #ec7014 #fe9929 #fec44f #a50f15 #de2d26 #7a0177 #bdbdbd #737373 #41ab5d #d9d9d9"
scale = (unit[1:3] eq "GPU") ? 1e6 : 1
set title study noenhanced
set ylabel unit
set ytics nomirror
set xlabel "above each bar: tokens/s/GPU"
set grid ytics
set style data histograms
set style histogram rowstacked
set style fill solid 0.95 border rgb "white"
set boxwidth 0.7
set xtics rotate by -30 noenhanced
set key outside right top reverse Left noenhanced samplen 1
label(point, runs, fits) = point . (runs ne "1" ? " (cannot run)" : fits ne "1" ? " (does not fit)" : "")
stats csv skip 1 using 17 nooutput name "V"
set yrange [0:V_max * scale * 1.08]
shown = "" # parts that some point has
do for [p=1:words(parts)] {
  stats csv skip 1 using (valid(17+p) ? column(17+p) : 0) nooutput name "C"
  if (C_max > 0) { shown = shown . sprintf(" %d", p) }
}
plot for [k=1:words(shown)] csv skip 1 using (column(17+int(word(shown, k)))*scale):xtic(label(strcol(2), strcol(7), strcol(8))) lc rgb word(colours, int(word(shown, k))) \
       title word(parts, int(word(shown, k))), \
     csv skip 1 using 0:($17*scale):(valid(12) ? sprintf("%.0f", $12) : "") with labels offset 0,0.6 notitle
