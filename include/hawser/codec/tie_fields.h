#pragma once

#include <cstddef>
#include <tuple>

namespace hawser::codec {

// In place of the fields of a struct with bit-fields, to which no reference can be made.
struct BitFields {};

#define HAWSER_TIE(fields, ...)                          \
  if constexpr (count == fields) {                       \
    auto& [__VA_ARGS__] = value;                         \
    if constexpr (requires { std::tie(__VA_ARGS__); }) { \
      return std::tie(__VA_ARGS__);                      \
    } else {                                             \
      return BitFields();                                \
    }                                                    \
  }                                                      \
  static_assert(true)
#define HAWSER_TIE_8(fields, some, a, b, c, d, e, f, g, h) \
  HAWSER_TIE(fields + 1, some, a);                         \
  HAWSER_TIE(fields + 2, some, a, b);                      \
  HAWSER_TIE(fields + 3, some, a, b, c);                   \
  HAWSER_TIE(fields + 4, some, a, b, c, d);                \
  HAWSER_TIE(fields + 5, some, a, b, c, d, e);             \
  HAWSER_TIE(fields + 6, some, a, b, c, d, e, f);          \
  HAWSER_TIE(fields + 7, some, a, b, c, d, e, f, g);       \
  HAWSER_TIE(fields + 8, some, a, b, c, d, e, f, g, h)
#define HAWSER_8 a, b, c, d, e, f, g, h
#define HAWSER_16 HAWSER_8, i, j, k, l, m, n, o, p
#define HAWSER_24 HAWSER_16, q, r, s, t, u, v, w, x
#define HAWSER_32 HAWSER_24, y, z, A, B, C, D, E, F
#define HAWSER_40 HAWSER_32, G, H, I, J, K, L, M, N
#define HAWSER_48 HAWSER_40, O, P, Q, R, S, U, V, W
#define HAWSER_56 HAWSER_48, X, Y, Z, aa, ab, ac, ad, ae

// Returns references to the `count` fields of a struct as a std::tuple, or BitFields. The language cannot express this
// for any number, so each number has a statement.
template <std::size_t count, class T>
constexpr auto tie_fields(T& value) noexcept {
  HAWSER_TIE(1, a);
  HAWSER_TIE(2, a, b);
  HAWSER_TIE(3, a, b, c);
  HAWSER_TIE(4, a, b, c, d);
  HAWSER_TIE(5, a, b, c, d, e);
  HAWSER_TIE(6, a, b, c, d, e, f);
  HAWSER_TIE(7, a, b, c, d, e, f, g);
  HAWSER_TIE(8, a, b, c, d, e, f, g, h);
  HAWSER_TIE_8(8, HAWSER_8, i, j, k, l, m, n, o, p);
  HAWSER_TIE_8(16, HAWSER_16, q, r, s, t, u, v, w, x);
  HAWSER_TIE_8(24, HAWSER_24, y, z, A, B, C, D, E, F);
  HAWSER_TIE_8(32, HAWSER_32, G, H, I, J, K, L, M, N);
  HAWSER_TIE_8(40, HAWSER_40, O, P, Q, R, S, U, V, W);
  HAWSER_TIE_8(48, HAWSER_48, X, Y, Z, aa, ab, ac, ad, ae);
  HAWSER_TIE_8(56, HAWSER_56, af, ag, ah, ai, aj, ak, al, am);
}

#undef HAWSER_56
#undef HAWSER_48
#undef HAWSER_40
#undef HAWSER_32
#undef HAWSER_24
#undef HAWSER_16
#undef HAWSER_8
#undef HAWSER_TIE_8
#undef HAWSER_TIE

}  // namespace hawser::codec
