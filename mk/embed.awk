# Writes the files given as C strings: page.html is ms_page_markup, *.css together ms_page_style, *.js together (in
# the order given) ms_page_script.
# One line of a file is one line of C, so that a diff of the result reads like a diff of the file.
function name_of(file) {
  return file ~ /\.css$/ ? "ms_page_style" : file ~ /\.js$/ ? "ms_page_script" : "ms_page_markup"
}
function quoted(line) {
  gsub(/\\/, "&&", line)
  gsub(/"/, "\\\\&", line)
  gsub(/\?\?/, "?\"\"?", line) # or C would read a trigraph
  return line
}
BEGIN { print "#include \"report/page_text.h\"" }
FNR == 1 && name_of(FILENAME) != open {
  if (open) print ";"
  open = name_of(FILENAME)
  printf "const char %s[] =\n", open
}
{ printf "\"%s\\n\"\n", quoted($0) }
END { if (open) print ";" }
