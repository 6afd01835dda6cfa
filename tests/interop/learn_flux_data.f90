!> Writes the batches of examples/fortran/learn_flux.f90 to data/cells.npy and data/labels.npy.
program learn_flux_data
  use, intrinsic :: iso_fortran_env, only: int8, int16, int64, real32, real64
  use advection
  use halo, only: ranks
  implicit none
  integer, parameter :: waves = 8, steps = 3200
  real(real64) :: fine(ratio * coarse_cells + 2 * halo_width, waves)
  real(real64) :: cells(coarse_cells + 2 * halo_width, waves), correction(coarse_cells, waves)
  integer(int64) :: seed = 1
  integer :: cells_file, labels_file, step
  if (ranks /= 1) error stop
  call create("data/cells.npy", size(cells, 1), cells_file)
  call create("data/labels.npy", size(correction, 1), labels_file)
  do step = 0, steps - 1
    call observe(step, fine, seed, cells, correction)
    write (cells_file) real(cells, real32)
    write (labels_file) real(correction, real32)
  end do
contains
  !> Starts a file of float32 of shape [steps * waves, width].
  subroutine create(name, width, unit)
    character(*), intent(in) :: name
    integer, intent(in) :: width
    integer, intent(out) :: unit
    character(117) :: header
    write (header, "(a, i0, a, i0, a)") "{'descr': '<f4', 'fortran_order': False, 'shape': (", steps * waves, ", ", width, "), }"
    open (newunit=unit, file=name, access="stream", form="unformatted", status="replace")
    write (unit) -109_int8, "NUMPY", 1_int8, 0_int8, 118_int16, header, new_line("a")
  end subroutine
end program
