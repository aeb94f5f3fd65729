// Which cases there are: each path through the kernels with each dtype, and everything else dealt
// out among them, so that it does not multiply.

#include <algorithm>

#include "driver/case.hpp"
#include "driver/paths.hpp"

namespace emulation_tests {
namespace {

constexpr Parameter kParameters[] = {Parameter::as_input, Parameter::float32, Parameter::absent};
constexpr Content kContents[] = {Content::ordinary, Content::far_from_zero, Content::ordinary,
                                 Content::huge,     Content::not_finite,    Content::tiny,
                                 Content::constant};

// Rows from these lengths on get fewer runs, and fewer cases.
constexpr std::int64_t kHeavyCols = 6000;
constexpr std::int64_t kManyCols = 70000;
constexpr std::int64_t kHugeCols = 120000;

bool has_16_bits(Dtype dtype) { return simple_layernorm::size_of(dtype) == 2; }

/// Case number i of a list. The periods of the choices have no common factor: each choice meets
/// each.
Case dealt(std::size_t i, std::int64_t cols, Dtype dtype) {
  Case c;
  c.cols = cols;
  c.dtype = dtype;
  c.weight = kParameters[i % 3];
  c.bias = kParameters[i / 3 % 3];
  c.content = kContents[i % 7];
  c.wide_output = has_16_bits(dtype) && i % 5 == 2;
  c.multiprocessors = 2 + static_cast<int>(i % 4);
  c.heavy = cols > kHeavyCols;
  c.padding = i % 2 == 0 ? 16 : 0;
  // Several blocks, and a last one that is not full, where rows are cheap.
  const std::int64_t most_rows = std::clamp<std::int64_t>(4000 / cols, 2, 150);
  c.rows = 1 + static_cast<std::int64_t>(i * 37) % most_rows;
  return c;
}

/// Kinds of rows that take different code within a path: whole packs or any length, with both
/// parameters in the input's dtype, or both in float32, or (any, any_wide) each in some dtype.
enum class Fit { whole_packs, whole_packs_float32, any, any_as_input, any_wide, whole_packs_wide };

Case fitted(std::size_t i, const Path& path, Dtype dtype, Fit fit) {
  const std::int64_t last = std::min(path.last_cols, path.first_cols + 1000);
  const std::int64_t pack = 16 / static_cast<std::int64_t>(simple_layernorm::size_of(dtype));
  const std::int64_t whole = last / pack * pack, odd = (path.first_cols + last) / 2 | 1;
  const bool is_any = fit == Fit::any || fit == Fit::any_as_input || fit == Fit::any_wide;
  Case c = dealt(i, is_any ? std::min(odd, last) : std::max(whole, path.first_cols), dtype);
  c.multiprocessors = path.multiprocessors;
  if (c.heavy) c.rows = path.rows;
  if (fit == Fit::any) return c;
  c.wide_output = fit == Fit::any_wide || fit == Fit::whole_packs_wide;
  if (fit == Fit::any_wide) return c;
  const bool as_input = fit == Fit::whole_packs || fit == Fit::any_as_input;
  c.weight = c.bias = as_input ? Parameter::as_input : Parameter::float32;
  return c;
}

/// A pass, with the kinds of rows that there are for elements of 16 bits; others have the first
/// two.
struct Pass {
  std::vector<Path> (*paths_of)(Dtype);
  std::string (*path_of)(const Case&);
  std::vector<Fit> fits_of_16_bits;
};

/// Blocks that share rows still have one on its way when they take the next: a case for all that
/// such a path knows.
bool wants_more_rows(const Case& c) {
  const bool stands_for_all = c.dtype == Dtype::float32 || c.weight == Parameter::as_input;
  return c.heavy && stands_for_all && c.cols < kManyCols;
}

std::vector<Case> cases_of(const Pass& pass, const std::vector<std::int64_t>& cols) {
  std::vector<Case> cases;
  for (Dtype dtype : kAllDtypes) {
    for (std::int64_t n : cols) cases.push_back(dealt(cases.size(), n, dtype));
    if (!cols.empty()) continue;
    for (const Path& path : pass.paths_of(dtype)) {
      const auto add = [&](Fit fit) {
        Case c = fitted(cases.size(), path, dtype, fit);
        const std::int64_t rows = c.rows;
        if (wants_more_rows(c)) {
          c.rows = 3;
          c.padding = 16;
        }
        if (pass.path_of(c) != path.name) c.rows = rows;
        if (pass.path_of(c) != path.name) c.rows = path.rows;
        if (pass.path_of(c) != path.name && fit == Fit::any) c.wide_output = false;
        cases.push_back(c);
      };
      std::vector<Fit> fits = pass.fits_of_16_bits;
      if (!has_16_bits(dtype)) fits = {Fit::any, Fit::whole_packs};
      if (path.first_cols > kHugeCols) {
        add(fits[cases.size() % fits.size()]);
        continue;
      }
      for (Fit fit : fits) add(fit);
      if (path.first_cols < kHeavyCols) {
        cases.push_back(dealt(cases.size(), path.first_cols, dtype));
      }
    }
  }
  return cases;
}

/// Lengths around the sizes of waves and blocks, for the kernels that take any.
const std::vector<std::int64_t> kGeneralCols = {1,  2,   3,   31,  32,  33,   63,  64,
                                                65, 127, 256, 257, 768, 1000, 2049};

void add_general_cases(std::vector<Case>& cases) {
  for (std::size_t i = 0; i < kGeneralCols.size(); ++i) {
    cases.push_back(dealt(i, kGeneralCols[i], Dtype::float64));
  }
}

}  // namespace

std::vector<Case> forward_cases(const std::vector<std::int64_t>& cols) {
  const Pass pass = {forward_paths,
                     forward_path,
                     {Fit::any, Fit::any_as_input, Fit::whole_packs, Fit::whole_packs_float32}};
  std::vector<Case> cases = cases_of(pass, cols);
  if (cols.empty()) {
    add_general_cases(cases);
    // Two groups of two blocks, which draw the rows that follow from one number.
    cases.push_back(dealt(0, 512 * warpSize + 4, Dtype::float32));
    cases.back().rows = 5;
    cases.back().multiprocessors = 4;
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    c.statistics = i % 3 != 1;
    // A block to each, which takes long: a whole group of fibers for a few columns.
    if (c.dtype == Dtype::float64) c.rows = std::min<std::int64_t>(c.rows, 5);
  }
  return cases;
}

std::vector<Case> backward_cases(const std::vector<std::int64_t>& cols) {
  const Pass pass = {
      backward_paths,
      backward_path,
      {Fit::any, Fit::whole_packs, Fit::whole_packs_float32, Fit::any_wide, Fit::whole_packs_wide}};
  std::vector<Case> cases = cases_of(pass, cols);
  if (cols.empty()) {
    add_general_cases(cases);
    // So many partial sums that several threads share a column of them.
    cases.push_back(dealt(0, 600, Dtype::float32));
    cases.back().rows = 80;
    // More rows than groups of three blocks, of which as many run whether rows are aligned or not.
    cases.push_back(dealt(0, 4100, Dtype::float32));
    cases.back().rows = 9;
    cases.back().multiprocessors = 5;
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Case& c = cases[i];
    if (c.content == Content::not_finite) c.content = Content::ordinary;
    c.grad_input = i % 4 != 3;
    c.grad_weight = i % 5 != 3;
    c.grad_bias = i % 6 != 4;
  }
  return cases;
}

}  // namespace emulation_tests
