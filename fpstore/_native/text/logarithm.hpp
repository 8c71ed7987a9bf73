// A logarithm that is the same on all machines: libraries round theirs differently.
#pragma once
#include <cstdint>
#include <cstring>

namespace fpstore {

// The natural logarithm of a number above 0, by the series of the inverse hyperbolic tangent; off
// by at most a few units in the last place. Nothing but sums, products and quotients of doubles, in
// one order: what includes it is compiled with -ffp-contract=off.
inline double natural_log(double x) {
  constexpr double kLog2 = 0x1.62E42FEFA39EFp-1, kRootOfHalf = 0x1.6A09E667F3BCDp-1;
  constexpr uint64_t kExponent = uint64_t{0x7FF} << 52;
  double exponent = 0;
  if (x < 0x1p-1000) {  // below normal numbers there may be no exponent
    x *= 0x1p200;
    exponent = -200;
  }
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  exponent += static_cast<double>(static_cast<int64_t>((bits & kExponent) >> 52) - 1022);
  bits = (bits & ~kExponent) | uint64_t{1022} << 52;
  double m;  // from 1/2 on, below 1
  memcpy(&m, &bits, sizeof m);
  if (m < kRootOfHalf) {
    m *= 2;
    exponent -= 1;
  }
  const double s = (m - 1) / (m + 1), square = s * s;  // the square is at most 0.03
  double sum = 0;
  for (int n = 21; n > 0; n -= 2) sum = sum * square + 1.0 / n;
  return exponent * kLog2 + 2 * s * sum;
}

}  // namespace fpstore
