# plots/front.gp - step time against free memory of the layouts that `moesim plan --plot` found, a colour for each cluster; filled: on the front.
# gnuplot -e "csv='rows.csv'; out='plot.svg'; names='\"deepseek-v3, 256 x gb200-nvl72\"'" plots/front.gp
# Columns: cluster (place in names), GPUs, step time in s, free memory of the fullest stage in GiB, 1 on the front.
if (out[strlen(out)-3:*] eq ".png") { set terminal pngcairo size 1000,640 } else { set terminal svg size 1000,640 dynamic background rgb 'white' }
set output out
set datafile separator comma
set xlabel "free memory on the fullest stage, GiB"
set ylabel "step time, s"
set grid
set key outside bottom center horizontal noenhanced
set offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05
plot for [i=1:words(names)] csv skip 1 using ($1 == i ? $4 : NaN):3 with lines lw 1 lc i dt 2 notitle, \
     for [i=1:words(names)] csv skip 1 using ($1 == i && $5 == 1 ? $4 : NaN):3 with points pt 7 ps 0.9 lc i title word(names, i), \
     for [i=1:words(names)] csv skip 1 using ($1 == i && $5 == 0 ? $4 : NaN):3 with points pt 6 ps 0.9 lc i notitle
