#include "etude/integrations/codecarbon/rapl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "etude/base/lower_case.hpp"

namespace etude::inline v0::detail {
namespace rapl {

namespace {

std::optional<std::int64_t> read_number(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}

std::string read_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// True for intel-rapl:0, false for intel-rapl and intel-rapl:0:0.
bool is_top_level(const std::string& name) {
  return name.starts_with("intel-rapl") && std::ranges::count(name, ':') == 1;
}

void add_domains(const std::filesystem::path& folder, std::set<std::filesystem::path>& found,
                 bool is_control_type = false) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (is_top_level(name))
      found.insert(std::filesystem::weakly_canonical(entry.path(), error));
    else if (!is_control_type && name.starts_with("intel-rapl") && name.find(':') == name.npos)
      add_domains(entry.path(), found, true);
  }
}

/// Whether two readings are probably of the same counter: they differ only by the energy used between them.
bool are_the_same(std::int64_t a, std::int64_t b) {
  constexpr double joule = 1e6, relative = 1e-6;
  return std::abs(static_cast<double>(a - b)) <=
         std::max(joule, relative * static_cast<double>(std::max(a, b)));
}

}  // namespace

}  // namespace rapl

Rapl::Rapl(const std::filesystem::path& directory, Options options) {
  find(directory, options);
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    auto& domain = domains_[i];
    domain.last = rapl::read_number(domain.folder / "energy_uj");
    domain.range = rapl::read_number(domain.folder / "max_energy_range_uj").value_or(0);
    for (std::size_t j = 0; j < i && !domain.mirrors && !domain.is_dram; ++j)
      if (!domains_[j].is_dram && !domains_[j].mirrors && domain.last.value_or(0) > 0 &&
          domains_[j].last.value_or(0) > 0 && rapl::are_the_same(*domain.last, *domains_[j].last))
        domain.mirrors = j;
  }
}

void Rapl::find(const std::filesystem::path& directory, Options options) {
  std::set<std::filesystem::path> folders;
  rapl::add_domains(directory, folders);
  std::map<std::string, Domain> packages, platforms, memories;
  for (const auto& folder : folders) {
    const auto name = lower_case(rapl::read_line(folder / "name"));
    const bool is_package = name.find("package") != name.npos, is_platform = name == "psys",
               is_dram = name.find("dram") != name.npos;
    if (!is_package && !is_platform && !(is_dram && options.include_dram)) continue;
    Domain domain{.name = name,
                  .folder = folder,
                  .is_mmio = folder.filename().string().starts_with("intel-rapl-mmio"),
                  .is_dram = is_dram && !is_package};
    auto& group = is_package ? packages : is_platform ? platforms : memories;
    const auto there = group.find(name);
    const bool is_readable = rapl::read_number(folder / "energy_uj").has_value();
    const bool there_is_readable =
        there != group.end() && rapl::read_number(there->second.folder / "energy_uj").has_value();
    if (there == group.end() || (is_readable && (!there_is_readable || domain.is_mmio)))
      group.insert_or_assign(name, std::move(domain));
  }
  const bool by_platform = packages.empty() || (options.prefer_psys && !platforms.empty());
  for (auto& [name, domain] : by_platform ? platforms : packages) domains_.push_back(std::move(domain));
  if (!by_platform)
    for (auto& [name, domain] : memories) domains_.push_back(std::move(domain));
  for (const auto& domain : domains_) {
    const auto path = domain.folder / "energy_uj";
    errno = 0;
    if (rapl::read_number(path) || !fault_.empty()) continue;
    fault_ = fmt::format("{} can't be read{}", path.string(),
                         errno == EACCES ? ": only root may read it (to allow others: chmod a+r)" : "");
  }
}

std::vector<std::string> Rapl::names() const {
  std::vector<std::string> names;
  for (const auto& domain : domains_) names.push_back(domain.name);
  return names;
}

std::optional<double> Rapl::take_kwh() {
  std::vector<std::optional<std::int64_t>> deltas;
  bool is_whole = true;
  for (auto& domain : domains_) {
    const auto now = rapl::read_number(domain.folder / "energy_uj");
    const auto last = std::exchange(domain.last, now);
    std::optional<std::int64_t> delta;
    if (now && last) delta = *now >= *last ? *now - *last : *now + domain.range - *last;
    if (delta && *delta < 0) delta = std::nullopt;  // reset, not wrapped around
    is_whole = is_whole && delta.has_value();
    deltas.push_back(delta);
  }
  std::int64_t microjoules = 0;
  if (is_whole) settle_mirrors(deltas);
  for (std::size_t i = 0; i < domains_.size(); ++i)
    if (!domains_[i].mirrors) microjoules += deltas[i].value_or(0);
  if (!is_whole || domains_.empty()) return std::nullopt;
  return static_cast<double>(microjoules) * 1e-6 * kwh_per_joule;
}

/// Some processors with several dies show one counter once per die. Two counters that are equal at one moment
/// are the same if they also grow equally from there.
void Rapl::settle_mirrors(const std::vector<std::optional<std::int64_t>>& deltas) {
  for (std::size_t i = 0; i < domains_.size(); ++i) {
    auto& domain = domains_[i];
    if (!domain.mirrors || domain.is_settled) continue;
    const auto mine = *deltas[i], other = *deltas[*domain.mirrors];
    domain.is_settled = mine > 0 || other > 0;
    if (domain.is_settled && !rapl::are_the_same(mine, other)) domain.mirrors.reset();
  }
}

}  // namespace etude::inline v0::detail
