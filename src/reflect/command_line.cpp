#include "etude/reflect/command_line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/reflect/flag.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/nearest.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// True for "-o", but not for "-", "-1" and "-.5".
bool is_short_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
}

class CommandLine {
 public:
  void add(FlagStruct part) {
    for (auto& flag : part.flags) add_flag(std::move(flag));
    if (!part.about.empty()) about_ = part.about;
    if (!part.notes.empty()) notes_ = part.notes;
    reads_config_ = reads_config_ && part.reads_config;
    names_elsewhere_.insert(names_elsewhere_.end(), part.names_elsewhere.begin(), part.names_elsewhere.end());
    structs_.push_back(std::move(part));
  }

  void parse(const std::vector<std::string>& words, std::string_view program) {
    auto given = split(words, program);
    merge_repeated(given);
    const auto is_config = [this](const Given& flag) { return reads_config_ && flag.name == "config"; };
    for (const auto& flag : given)
      if (is_config(flag)) read_config(flag);
    for (const auto& flag : given)
      if (!is_config(flag)) apply(flag);
    apply_positional();
    std::vector<std::string> lines;
    for (const auto& flag : flags_) flag.check(lines);
    const auto fields = lines;
    std::vector<std::string> more;
    for (const auto& part : structs_) part.validate(more);
    // A struct's errors may include its fields' errors.
    for (auto& line : more)
      if (std::find(fields.begin(), fields.end(), line) == fields.end()) lines.push_back(std::move(line));
    // A malformed value leaves the default in place, so errors that result from that aren't reported.
    for (auto& line : lines) {
      if (std::none_of(misread_.begin(), misread_.end(),
                       [&](const auto& name) { return has_word(line, name); })) {
        faults_.push_back(std::move(line));
      }
    }
    if (!faults_.empty()) throw ArgumentError(fmt::format("{}", fmt::join(faults_, "\n")));
  }

 private:
  /// Throws ArgumentError if the flag already has another meaning, or the field can't have its spelling.
  void add_flag(Flag flag) {
    if (const auto* other = find(flag.name))
      throw ArgumentError(
          fmt::format("{} has a field '{}', and so does {}: on a command line each name must be "
                      "unique",
                      flag.group, flag.name, other->group));
    if (flag.name == "config" || flag.name == "help")
      throw ArgumentError(
          fmt::format("{} has a field '{}': must have another name, since --{} has its own meaning",
                      flag.group, flag.name, flag.name));
    if (flag.spelling == Spelling::repeated && !flag.is_list)
      throw ArgumentError(
          fmt::format("{} has a field '{}', which is repeated(): must be a list", flag.group, flag.name));
    if (flag.spelling == Spelling::positional) {
      for (const auto& other : flags_)
        if (flag.is_list && other.is_list && other.spelling == Spelling::positional)
          throw ArgumentError(
              fmt::format("{} has a field '{}', which is positional(), and so is '{}': must be "
                          "one list only",
                          flag.group, flag.name, other.name));
      has_positional_ = true;
    }
    flags_.push_back(std::move(flag));
  }

  static bool has_word(std::string_view line, std::string_view word) {
    const auto in_word = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); };
    for (auto at = line.find(word); at != line.npos; at = line.find(word, at + 1)) {
      const auto end = at + word.size();
      if ((at == 0 || !in_word(line[at - 1])) && (end == line.size() || !in_word(line[end]))) return true;
    }
    return false;
  }

  struct Given {
    std::string spelled = {}, name = {};
    std::vector<std::string> words = {};
    bool has_value = false;  // given with "=", so no further word belongs to it
  };

  /// The field of this name, positional or not.
  const Flag* find(std::string_view name) const {
    const auto it =
        std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
    return it == flags_.end() ? nullptr : &*it;
  }

  /// Like `find`, but null for a positional field.
  const Flag* find_flag(std::string_view name) const {
    const auto* flag = find(name);
    return flag && flag->spelling != Spelling::positional ? flag : nullptr;
  }

  /// The switch that "no_<switch>" turns off.
  const Flag* find_negated(std::string_view name) const {
    const auto* flag = name.starts_with("no_") ? find_flag(name.substr(3)) : nullptr;
    return flag && flag->is_switch ? flag : nullptr;
  }

  /// The maximum number of words after a flag; the words of an unknown flag are skipped with it.
  std::size_t most_words(const Given& given) const {
    if (given.has_value) return 0;
    if (const auto* flag = find_flag(given.name)) {
      if (flag->is_switch && has_positional_) return 0;
      return flag->is_list && flag->spelling != Spelling::repeated ? std::size_t(-1) : 1;
    }
    if (given.name == "config" && reads_config_) return 1;
    return find_negated(given.name) ? 0 : std::size_t(-1);
  }

  std::vector<Given> split(const std::vector<std::string>& words, std::string_view program) {
    std::vector<Given> given;
    for (auto place = words.begin(); place != words.end(); ++place) {
      const auto& word = *place;
      if (word == "-h" || word == "--help")
        throw HelpRequested(help_text(
            flags_, {.program = program, .about = about_, .notes = notes_, .has_config = reads_config_}));
      if (has_positional_ && word == "--") {
        positional_words_.insert(positional_words_.end(), place + 1, words.end());
        break;
      }
      if (word.starts_with("--") && word.size() > 2) {
        const auto equals = word.find('=');
        Given flag{.spelled = word.substr(0, equals)};
        flag.name = flag.spelled.substr(2);
        if (equals != word.npos) {
          flag.words = {word.substr(equals + 1)};
          flag.has_value = true;
        }
        std::replace(flag.name.begin(), flag.name.end(), '-', '_');
        given.push_back(std::move(flag));
      } else if (!given.empty() && given.back().words.size() < most_words(given.back())) {
        given.back().words.push_back(word);
      } else if (!has_positional_) {
        faults_.push_back(fmt::format("unexpected argument '{}': write --name value", word));
      } else if (is_short_flag(word)) {
        has_unknown_flag_ = true;
        faults_.push_back(fmt::format("unknown flag {}{}", word, offer(word.substr(1), "--")));
      } else {
        positional_words_.push_back(word);
      }
    }
    return given;
  }

  /// Joins the words of a repeated flag.
  void merge_repeated(std::vector<Given>& given) const {
    std::vector<Given> merged;
    for (auto& each : given) {
      const auto* flag = find_flag(each.name);
      const auto first = std::find_if(merged.begin(), merged.end(), [&](const Given& other) {
        return other.name == each.name && !other.words.empty();
      });
      if (!flag || flag->spelling != Spelling::repeated || each.words.empty() || first == merged.end())
        merged.push_back(std::move(each));
      else
        first->words.push_back(each.words[0]);
    }
    given = std::move(merged);
  }

  /// Assigns the words without a flag to the positional fields.
  void apply_positional() {
    const auto is_given = [this](const Flag& flag) {
      return std::find(in_config_.begin(), in_config_.end(), flag.name) != in_config_.end();
    };
    std::vector<const Flag*> fields;
    for (const auto& flag : flags_)
      if (flag.spelling == Spelling::positional) fields.push_back(&flag);
    auto next = positional_words_.begin();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto& flag = *fields[i];
      const auto left = static_cast<std::size_t>(positional_words_.end() - next);
      // Leaves one word for each later field that requires one.
      const auto needed = static_cast<std::size_t>(
          std::count_if(fields.begin() + static_cast<std::ptrdiff_t>(i) + 1, fields.end(),
                        [&](const Flag* other) { return other->is_required && !is_given(*other); }));
      auto count = left > needed ? left - needed : 0;
      if (!flag.is_list) count = std::min<std::size_t>(flag.is_required && !is_given(flag) ? left : count, 1);
      if (count > 0) {
        const auto end = next + static_cast<std::ptrdiff_t>(count);
        read({.spelled = positional_name(flag)}, flag, {next, end});
        next = end;
      } else if (flag.is_required && !is_given(flag)) {
        // An unknown flag may have taken its word.
        if (has_unknown_flag_)
          misread_.push_back(flag.name);
        else
          misread(flag.name, fmt::format("{} is not given: must be {}", positional_name(flag),
                                         flag.doc.empty() ? flag.allowed : flag.doc));
      }
    }
    for (; next != positional_words_.end(); ++next)
      faults_.push_back(fmt::format("unexpected argument '{}': the words without a flag are {}", *next,
                                    positional_usage(flags_)));
  }

  void apply(const Given& given) {
    if (const auto* flag = find_flag(given.name)) {
      const bool may_be_empty = flag->is_switch || (flag->is_list && flag->spelling == Spelling::flag);
      if (given.words.empty() && !may_be_empty) {
        misread(given.name, fmt::format("{} has no value: must be {}", given.spelled, flag->allowed));
      } else {
        read(given, *flag,
             given.words.empty() && flag->is_switch ? std::vector<std::string>{"true"} : given.words);
      }
    } else if (const auto* negated = find_negated(given.name)) {
      if (given.has_value) {
        misread(negated->name, fmt::format("{} takes no value, but has '{}'", given.spelled, given.words[0]));
      } else {
        read(given, *negated, {"false"});
      }
    } else if (given.name == "help") {
      faults_.push_back(fmt::format("{} takes no value, but has '{}'", given.spelled, given.words[0]));
    } else {
      has_unknown_flag_ = true;
      faults_.push_back(fmt::format("unknown flag {}{}", given.spelled, offer(given.name, "--")));
    }
  }

  void read(const Given& given, const Flag& flag, const std::vector<std::string>& words) {
    std::string more;
    try {
      if (flag.read(words)) return;
      if (words.size() == 1) more = did_you_mean(words[0], flag.choices);
    } catch (const ArgumentError& error) {
      more = fmt::format(" ({})", error.what());
    }
    misread(flag.name, fmt::format("{} is '{}': must be {}{}", given.spelled, fmt::join(words, " "),
                                   flag.allowed, more));
  }

  void misread(const std::string& name, std::string fault) {
    misread_.push_back(name);
    faults_.push_back(std::move(fault));
  }

  void read_config(const Given& given) {
    if (given.words.empty()) return faults_.push_back("--config has no value: must be a JSON file");
    const auto& path = given.words[0];
    const auto text = read_file(path);
    if (!text)
      return faults_.push_back(fmt::format("--config is '{}': must be a JSON file that can be read", path));
    try {
      const auto json = parse_json(*text);
      if (!json.is_object()) throw ArgumentError("must hold a JSON object with the names of flags as keys");
      JsonReader reader;
      for (const auto& part : structs_) part.read_json(reader, json);
      for (const auto& fault : reader.faults) {
        misread(fault.substr(0, fault.find_first_of(" .[")), path + ": " + fault);
      }
      for (const auto& [key, value] : json.items()) {
        in_config_.push_back(key);
        if (!find(key)) {
          faults_.push_back(fmt::format("{}: unknown field '{}'{}", path, key, offer(key, "")));
        }
      }
      for (const auto& key : reader.unknown_keys) {
        // The structs report each other's keys as unknown, so only keys inside a known field are errors.
        if (!json.contains(key) && find(key.substr(0, key.find_first_of(".[")))) {
          faults_.push_back(fmt::format("{}: unknown field '{}'", path, key));
        }
      }
    } catch (const ArgumentError& error) {
      faults_.push_back(path + ": " + error.what());
    }
  }

  /// The flag that an unknown name was probably meant to be, formatted by `did_you_mean`.
  std::string offer(std::string_view name, std::string_view prefix) const {
    for (const auto& [there, here] : names_elsewhere_)
      if (name == there) return did_you_mean(here, std::vector{here}, prefix);
    std::vector<std::string_view> names{"help"};
    if (reads_config_) names.push_back("config");
    for (const auto& flag : flags_)
      if (prefix.empty() || flag.spelling != Spelling::positional) names.push_back(flag.name);
    if (name.size() == 1) {
      const auto it =
          std::find_if(names.begin(), names.end(), [&](const auto& each) { return each.starts_with(name); });
      if (it != names.end()) return did_you_mean(*it, std::vector{*it}, prefix);
    }
    return did_you_mean(name, names, prefix);
  }

  std::vector<Flag> flags_;
  std::vector<FlagStruct> structs_;
  std::vector<std::pair<std::string_view, std::string_view>> names_elsewhere_;
  std::vector<std::string> faults_, misread_, positional_words_, in_config_;
  std::string_view about_, notes_;
  bool has_positional_ = false, reads_config_ = true, has_unknown_flag_ = false;
};

}  // namespace

void parse_words(std::vector<FlagStruct> structs, const std::vector<std::string>& words,
                 std::string_view program) {
  CommandLine line;
  for (auto& part : structs) line.add(std::move(part));
  line.parse(words, program);
}

std::string_view program_name(int argc, const char* const* argv) {
  std::string_view program = argc > 0 ? argv[0] : "program";
  program.remove_prefix(program.rfind('/') + 1);
  return program;
}

void exit_with_help(const HelpRequested& help) {
  fmt::print("{}", help.what());
  std::exit(0);
}

void exit_with_faults(const ArgumentError& error, std::string_view program) {
  fmt::print(stderr, "{}\n{}: --help lists all flags\n", error.what(), program);
  std::exit(2);
}

}  // namespace detail

}  // namespace etude::inline v0
