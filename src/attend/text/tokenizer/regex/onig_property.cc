#include "attend/text/tokenizer/regex/onig_property.h"

#include <algorithm>
#include <utility>

namespace attend::tokenizer {
namespace {

// PCRE2 supports general categories only by their short names.
constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"letter", "L"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"casedletter", "L&"},
    {"lc", "L&"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"digit", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"alpha", "Alphabetic"},
    {"alphabetic", "Alphabetic"},
    {"upper", "Uppercase"},
    {"uppercase", "Uppercase"},
    {"lower", "Lowercase"},
    {"lowercase", "Lowercase"},
    {"any", "Any"},
    {"emoji", "Emoji"},
    {"extendedpictographic", "Extended_Pictographic"},
};

constexpr std::string_view kShortNames[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me",
                                            "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi",
                                            "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl",
                                            "Zp", "C",  "Cc", "Cf", "Cn", "Co", "Cs"};

// Pictographs added after Unicode 14, which are unassigned in PCRE2 10.42. These blocks contain only symbols.
constexpr std::string_view kNewSymbols = R"(\x{1F6D8}-\x{1FAFF})";

std::string fold(std::string_view name) {
  std::string folded;
  for (char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    folded.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return folded;
}

std::string category_items(std::string_view name) {
  std::string items = "\\p{" + std::string(name) + "}";
  if (name == "S" || name == "So") items += kNewSymbols;
  return items;
}

}  // namespace

std::optional<std::string> property_items(std::string_view name) {
  const std::string folded = fold(name);
  for (const auto& [long_name, category] : kLongNames) {
    if (folded == long_name) return category_items(category);
  }
  for (const std::string_view category : kShortNames) {
    if (folded == fold(category)) return category_items(category);
  }
  if (folded == "space" || folded == "whitespace") return std::string(kSpaceItems);
  if (folded == "word") return std::string(kWordItems);
  if (folded == "alnum") return R"(\p{Alphabetic}\p{Nd})";
  if (folded == "xdigit") return std::string(kHexItems);
  if (folded == "ascii") return R"(\x{00}-\x{7F})";
  const bool letters = std::all_of(folded.begin(), folded.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (folded.empty() || !letters) return std::nullopt;
  // Script. Without "sc:", PCRE2 would also match its script extensions.
  return "\\p{sc:" + folded + "}";
}

std::optional<std::string> posix_items(std::string_view name) {
  if (name == "punct") return R"(\p{P}\p{S})" + std::string(kNewSymbols);
  for (const std::string_view known :
       {"alpha", "digit", "space", "upper", "lower", "alnum", "xdigit", "word"}) {
    if (name == known) return property_items(name);
  }
  return std::nullopt;
}

}  // namespace attend::tokenizer
