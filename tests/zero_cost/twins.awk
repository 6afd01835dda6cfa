# Reads `objdump -dr --no-show-raw-insn` of an object file. For each X_etude and X_hand, the instructions that are reached when
# nothing throws must be the same, and none of X_etude's may be an indirect call or jump. Each X_unhandled must be a lone return.

/^[0-9a-f]+ <.*>:$/ { name = substr($2, 2, length($2) - 3); size[name] = 0; next }
/^\t+[0-9a-f]+: R_/ { symbol[name, size[name]] = $3; next }  # what the previous instruction refers to
/^ +[0-9a-f]+:\t/ {
  address = $1
  sub(/:$/, "", address)
  sub(/^ +[0-9a-f]+:\t/, "")
  sub(/ *[#;] .*/, "")
  gsub(/[ \t]+/, " ")
  sub(/ $/, "")
  text[name, ++size[name]] = $0
  at[name, address] = size[name]
}

function is_jump(line) { return line ~ /^(j[a-z]+|b(\.?(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|al))?|cbn?z|tbn?z) / }
function falls_through(line) { return line !~ /^(ret|jmp|b |br |ud2|hlt|brk|udf)/ }
function is_indirect(line) { return line ~ /^(call|jmp)[a-z]* \*/ || line ~ /^blr? ?x[0-9]/ || line ~ /^br / }

# The target of a jump within the function, or 0.
function target(f, i,   words, n) {
  if (!is_jump(text[f, i]) || (f, i) in symbol || text[f, i] !~ ("<" f "(\\+0x[0-9a-f]+)?>$")) return 0
  n = split(text[f, i], words, " ")
  return at[f, words[n - 1]]
}

# Fills listing[f, 1..count[f]] with the instructions reached from the entry.
function trace(f,   stack, top, i, seen, order, j, line) {
  stack[top = 1] = 1
  while (top > 0) {
    for (i = stack[top--]; i >= 1 && i <= size[f] && !(i in seen); ++i) {
      seen[i] = 1
      if (target(f, i)) stack[++top] = target(f, i)
      if (!falls_through(text[f, i])) break
    }
  }
  count[f] = 0
  for (i = 1; i <= size[f]; ++i)
    if ((i in seen) && text[f, i] !~ /nop|^xchg %ax,%ax$|^endbr64$/) ++count[f]
    else seen[i] = 0
  j = 0
  for (i = 1; i <= size[f]; ++i) {
    order[i] = j + 1
    if (seen[i]) ++j
  }
  j = 0
  for (i = 1; i <= size[f]; ++i) {
    if (!seen[i]) continue
    line = text[f, i]
    if (target(f, i)) sub(/ [0-9a-f]+ <.*>$/, " to " order[target(f, i)], line)
    else if ((f, i) in symbol) {
      sub(/ [0-9a-f]+ <.*>$/, "", line)
      line = line " " symbol[f, i]
      sub(/\.(LC|rodata)[A-Za-z0-9_.]*([+-]0x[0-9a-f]+)?$/, "a constant", line)
    }
    listing[f, ++j] = line
  }
}

# Renames the registers that a function saves by the order of their first use, since the choice of registers means nothing.
function rename(f,   i, line, name, known, used, rest) {
  for (i = 1; i <= count[f]; ++i) {
    rest = listing[f, i]
    line = ""
    if (rest ~ /^(push|pop) %(rbx|rbp|r1[2-5])$/) sub(/ %.*/, "", rest)
    while (match(rest, /%(rbx|rbp|r1[2-5])/)) {
      name = substr(rest, RSTART, RLENGTH)
      if (!(name in known)) known[name] = "%saved" ++used
      line = line substr(rest, 1, RSTART - 1) known[name]
      rest = substr(rest, RSTART + RLENGTH)
    }
    listing[f, i] = line rest
  }
}

function show(f,   i) {
  print f ":"
  for (i = 1; i <= count[f]; ++i) print "  " i ": " listing[f, i]
}

END {
  for (f in size) {
    trace(f)
    rename(f)
  }
  for (f in size) {
    if (f ~ /_unhandled$/) {
      ++checked
      if (count[f] == 1 && listing[f, 1] ~ /^ret/) continue
      print "An event without a handler must cost nothing:"
    } else if (f ~ /_etude$/) {
      ++checked
      hand = f
      sub(/_etude$/, "_hand", hand)
      same = count[f] == count[hand]
      for (i = 1; i <= count[f]; ++i) {
        if (listing[f, i] != listing[hand, i]) same = 0
        if (is_indirect(listing[f, i])) same = 0
      }
      if (same) continue
      print "These must be the same, without an indirect call:"
      show(hand)
    } else continue
    show(f)
    ++failed
  }
  print checked - failed " passed, " failed + 0 " failed"
  exit failed > 0 || checked == 0
}
