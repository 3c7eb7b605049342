#pragma once

namespace hawser {

// Notes for the pages how operator new and delete of this component were built. A call of it links them.
void note_operators() noexcept;

}  // namespace hawser
