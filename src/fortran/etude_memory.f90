!> The program's arrays as tensors, and a trainer's tensors as arrays. Programs use the module `etude`.
!>
!> A tensor has the dimensions of the array in reverse order: u(x, channel, example) is the tensor [example, channel, x].
!> Each rank has its own procedure, since some compilers lack assumed-rank arrays.
module etude_memory
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real32, real64
  use etude_c
  implicit none
  private
  public :: etude_arrays, etude_error, etude_point, etude_view
  public :: count_of, fail, get_tensors, report, view_of

  integer, parameter :: max_rank = 15
  type(c_ptr), parameter :: none(0) = c_null_ptr

  !> The address of an array, and its dimensions in the order of the tensor.
  type :: address
    character(kind=c_char), allocatable :: name(:)
    type(c_ptr) :: data = c_null_ptr
    integer(c_int64_t) :: shape(max_rank) = 0, strides(max_rank) = 0
    integer :: rank = 0, dtype = etude_float32, device_type = etude_cpu, device_index = 0
    logical :: has_gaps = .false.
  end type

  !> Named arrays: a batch, a dataset, a model's outputs, or the state that checkpoints keep. It holds addresses, not copies: an
  !> array must not be deallocated or reallocated while it is in use.
  type :: etude_arrays
    private
    type(address), allocatable :: all(:)
  contains
    !> Adds an array, or replaces the one with that name. The array must have the target attribute, without which the compiler
    !> finds no specific procedure. Sections with gaps aren't copied. Arrays named "" are identified by their position.
    !>
    !>     call arrays%add(name, array)
    generic :: add => add_real32_0, add_real32_1, add_real32_2, add_real32_3, add_real32_4, add_real32_5, add_real64_0, &
                      add_real64_1, add_real64_2, add_real64_3, add_real64_4, add_real64_5, add_int32_0, add_int32_1, &
                      add_int32_2, add_int32_3, add_int32_4, add_int32_5, add_int64_0, add_int64_1, add_int64_2, add_int64_3, &
                      add_int64_4, add_int64_5
    !> Adds any other memory, such as a GPU's.
    procedure :: add_address
    !> Removes all arrays.
    procedure :: clear
    procedure, private :: add_real32_0, add_real32_1, add_real32_2, add_real32_3, add_real32_4, add_real32_5, add_real64_0, &
                          add_real64_1, add_real64_2, add_real64_3, add_real64_4, add_real64_5, add_int32_0, add_int32_1, &
                          add_int32_2, add_int32_3, add_int32_4, add_int32_5, add_int64_0, add_int64_1, add_int64_2, &
                          add_int64_3, add_int64_4, add_int64_5
  end type

  !> A trainer's tensor: a parameter, a gradient, or an output. etude_point turns it into an array.
  type :: etude_view
    private
    type(c_ptr), public :: data = c_null_ptr !< null if the parameter has no gradient
    integer, public :: rank = 0, dtype = etude_float32, device_type = etude_cpu, device_index = 0
    integer(c_int64_t) :: shape_(max_rank) = 0
    logical :: has_gaps = .false.
  contains
    !> The shape of the array.
    procedure :: shape => view_shape
  end type

  !> Points at the tensor's memory. The pointer must have the tensor's type, and its rank or rank 1, for all elements in order. If
  !> there is no memory, the pointer becomes null.
  !>
  !>     call etude_point(weights, trainer%parameter("layer.weight"))
  interface etude_point
    module procedure point_real32_1, point_real32_2, point_real32_3, point_real32_4, point_real32_5, point_real64_1, &
                     point_real64_2, point_real64_3, point_real64_4, point_real64_5
  end interface

  ! The last error, if this module found it rather than the library.
  character(300), save :: own_error = ""

contains

  !> Why the last call that failed did so.
  function etude_error() result(text)
    character(:), allocatable :: text
    text = trim(own_error)
    if (text == "") text = fortran_string(etude_last_error())
  end function

  !> Sets `status`. If it is absent, an error stops the program.
  subroutine report(code, status)
    integer(c_int32_t), intent(in) :: code
    integer, intent(out), optional :: status
    if (code /= etude_ok) own_error = ""
    call settle(code, status)
  end subroutine

  !> Reports an error that this module found.
  subroutine fail(code, text, status)
    integer, intent(in) :: code
    character(*), intent(in) :: text
    integer, intent(out), optional :: status
    own_error = text
    call settle(code, status)
  end subroutine

  subroutine settle(code, status)
    integer, intent(in) :: code
    integer, intent(out), optional :: status
    if (present(status)) then
      status = code
    else if (code /= etude_ok) then
      write (error_unit, "(2a)") "etude: ", etude_error()
      error stop
    end if
  end subroutine

  subroutine clear(self)
    class(etude_arrays), intent(inout) :: self
    if (allocated(self%all)) deallocate (self%all)
  end subroutine

  !> `shape` and `strides`, in elements, are in Fortran's order. Without strides, the memory is contiguous.
  subroutine add_address(self, name, data, shape, dtype, device_type, device_index, strides, status)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    type(c_ptr), intent(in) :: data
    integer, intent(in) :: shape(:), dtype
    integer, intent(in), optional :: device_type, device_index, strides(:)
    integer, intent(out), optional :: status
    type(address) :: one
    character(100) :: text
    text = ""
    if (size(shape) > max_rank) then
      write (text, "(a, i0, a, i0)") "shape has ", size(shape), " sizes: must be at most ", max_rank
    else if (present(strides)) then
      if (size(strides) /= size(shape)) &
        write (text, "(2(a, i0))") "strides has ", size(strides), " values: must be as many as the sizes, ", size(shape)
    end if
    if (text /= "") then
      call fail(etude_invalid_argument, "add_address: " // trim(text), status)
      return
    end if
    if (present(status)) status = etude_ok
    one%data = data
    one%dtype = dtype
    if (present(device_type)) one%device_type = device_type
    if (present(device_index)) one%device_index = device_index
    one%rank = size(shape)
    one%shape(:one%rank) = shape(one%rank:1:-1)
    one%has_gaps = present(strides)
    if (present(strides)) one%strides(:one%rank) = strides(one%rank:1:-1)
    call insert(self, name, one)
  end subroutine

  !> `next` has the address of the second element along each dimension.
  subroutine place(self, name, dtype, shape, first, next)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer, intent(in) :: dtype, shape(:)
    type(c_ptr), intent(in) :: first, next(:)
    integer(c_intptr_t) :: distance
    integer(c_int64_t) :: contiguous
    integer :: i, bytes
    type(address) :: one
    bytes = merge(8, 4, dtype == etude_float64 .or. dtype == etude_int64)
    one%data = first
    one%dtype = dtype
    one%rank = size(shape)
    contiguous = 1
    do i = 1, one%rank
      associate (stride => one%strides(one%rank + 1 - i))
        distance = transfer(next(i), distance) - transfer(first, distance)
        stride = distance / bytes
        if (shape(i) == 1) stride = contiguous
        ! The components of a packed type may lie a fraction of an element apart. The library refuses a null pointer.
        if (stride * bytes /= distance .and. shape(i) > 1) one%data = c_null_ptr
        one%has_gaps = one%has_gaps .or. stride /= contiguous
      end associate
      one%shape(one%rank + 1 - i) = shape(i)
      contiguous = contiguous * shape(i)
    end do
    call insert(self, name, one)
  end subroutine

  !> Adds an array that has no elements or isn't associated, and thus has no address. The library refuses it.
  logical function is_missing(self, name, dtype, is_associated, shape)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer, intent(in) :: dtype, shape(:)
    logical, intent(in) :: is_associated
    is_missing = .true.
    if (.not. is_associated) then
      call self%add_address(name, c_null_ptr, spread(1, 1, size(shape)), dtype)
    else if (any(shape == 0)) then
      call self%add_address(name, c_null_ptr, shape, dtype)
    else
      is_missing = .false.
    end if
  end function

  subroutine insert(self, name, one)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    type(address), intent(inout) :: one
    integer :: i
    character(:), allocatable :: text
    text = c_string(name)
    one%name = transfer(text, [c_null_char])
    if (.not. allocated(self%all)) allocate (self%all(0))
    do i = 1, size(self%all)
      if (len(text) == 1 .or. size(self%all(i)%name) /= len(text)) cycle
      if (all(self%all(i)%name == one%name)) then
        self%all(i) = one
        return
      end if
    end do
    self%all = [self%all, one]
  end subroutine

  pure integer function count_of(arrays)
    class(etude_arrays), intent(in) :: arrays
    count_of = 0
    if (allocated(arrays%all)) count_of = size(arrays%all)
  end function

  !> The arrays in C's form, which points into `arrays`.
  subroutine get_tensors(arrays, tensors)
    class(etude_arrays), intent(in), target :: arrays
    type(c_tensor), intent(out) :: tensors(:)
    integer :: i
    do i = 1, size(tensors)
      associate (one => arrays%all(i))
        if (size(one%name) > 1) tensors(i)%name = c_loc(one%name)
        tensors(i)%data = one%data
        tensors(i)%shape = c_loc(one%shape)
        if (one%has_gaps) tensors(i)%strides = c_loc(one%strides)
        tensors(i)%rank = one%rank
        tensors(i)%dtype = one%dtype
        tensors(i)%device_type = one%device_type
        tensors(i)%device_index = one%device_index
      end associate
    end do
  end subroutine

  type(etude_view) function view_of(tensor) result(view)
    type(c_tensor), intent(in) :: tensor
    integer(c_int64_t), pointer :: shape(:), strides(:)
    integer :: i
    integer(c_int64_t) :: contiguous
    view%data = tensor%data
    view%dtype = tensor%dtype
    view%device_type = tensor%device_type
    view%device_index = tensor%device_index
    view%rank = tensor%rank
    if (.not. c_associated(tensor%shape)) return
    call c_f_pointer(tensor%shape, shape, [tensor%rank])
    view%shape_(:view%rank) = shape(view%rank:1:-1)
    if (.not. c_associated(tensor%strides)) return
    call c_f_pointer(tensor%strides, strides, [tensor%rank])
    contiguous = 1
    do i = view%rank, 1, -1
      if (shape(i) > 1 .and. strides(i) /= contiguous) view%has_gaps = .true.
      contiguous = contiguous * shape(i)
    end do
  end function

  pure function view_shape(self) result(shape)
    class(etude_view), intent(in) :: self
    integer(c_int64_t) :: shape(self%rank)
    shape = self%shape_(:self%rank)
  end function

  !> The shape of an array of that rank with all of the tensor's elements.
  pure function sizes(view, rank)
    type(etude_view), intent(in) :: view
    integer, intent(in) :: rank
    integer(c_int64_t) :: sizes(rank)
    sizes = view%shape_(:rank)
    if (rank == 1) sizes = product(view%shape_(:view%rank))
  end function

  logical function can_point(view, dtype, rank, status)
    type(etude_view), intent(in) :: view
    integer, intent(in) :: dtype, rank
    integer, intent(out), optional :: status
    character(*), parameter :: types(0:9) = [character(8) :: "real32", "real64", "float16", "bfloat16", "int8", "int16", &
                                             "int32", "int64", "uint8", "bool"]
    character(200) :: text
    if (present(status)) status = etude_ok
    can_point = c_associated(view%data)
    if (.not. can_point) return
    text = ""
    if (view%dtype /= dtype) then
      text = "the array is " // trim(types(dtype)) // ", but the tensor is " // trim(types(view%dtype))
    else if (rank /= 1 .and. rank /= view%rank) then
      write (text, "(a, i0, a, i0, a)") "the array has rank ", rank, ", but the tensor has ", view%rank, ": must be that or 1"
    else if (view%device_type /= etude_cpu) then
      text = "the tensor is in a GPU's memory: its address is view%data"
    else if (view%has_gaps) then
      text = "the tensor's elements aren't contiguous in memory"
    end if
    can_point = text == ""
    if (.not. can_point) call fail(etude_invalid_data, "etude_point: " // trim(text), status)
  end function

  subroutine add_real32_0(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array
    call place(self, name, etude_float32, shape(array), c_loc(array), none)
  end subroutine

  subroutine add_real32_1(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array(:)
    real(real32), pointer :: a(:)
    if (is_missing(self, name, etude_float32, associated(array), shape(array))) return
    a(1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float32, shape(a), c_loc(a(1)), [c_loc(a(n(1)))])
    end associate
  end subroutine

  subroutine add_real32_2(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array(:, :)
    real(real32), pointer :: a(:, :)
    if (is_missing(self, name, etude_float32, associated(array), shape(array))) return
    a(1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float32, shape(a), c_loc(a(1, 1)), [c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
    end associate
  end subroutine

  subroutine add_real32_3(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array(:, :, :)
    real(real32), pointer :: a(:, :, :)
    if (is_missing(self, name, etude_float32, associated(array), shape(array))) return
    a(1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float32, shape(a), c_loc(a(1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
    end associate
  end subroutine

  subroutine add_real32_4(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array(:, :, :, :)
    real(real32), pointer :: a(:, :, :, :)
    if (is_missing(self, name, etude_float32, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float32, shape(a), c_loc(a(1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
    end associate
  end subroutine

  subroutine add_real32_5(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real32), pointer, intent(in) :: array(:, :, :, :, :)
    real(real32), pointer :: a(:, :, :, :, :)
    if (is_missing(self, name, etude_float32, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float32, shape(a), c_loc(a(1, 1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1, 1)), c_loc(a(1, n(2), 1, 1, 1)), c_loc(a(1, 1, n(3), 1, 1)), &
                  c_loc(a(1, 1, 1, n(4), 1)), c_loc(a(1, 1, 1, 1, n(5)))])
    end associate
  end subroutine

  subroutine add_real64_0(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array
    call place(self, name, etude_float64, shape(array), c_loc(array), none)
  end subroutine

  subroutine add_real64_1(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array(:)
    real(real64), pointer :: a(:)
    if (is_missing(self, name, etude_float64, associated(array), shape(array))) return
    a(1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float64, shape(a), c_loc(a(1)), [c_loc(a(n(1)))])
    end associate
  end subroutine

  subroutine add_real64_2(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array(:, :)
    real(real64), pointer :: a(:, :)
    if (is_missing(self, name, etude_float64, associated(array), shape(array))) return
    a(1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float64, shape(a), c_loc(a(1, 1)), [c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
    end associate
  end subroutine

  subroutine add_real64_3(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array(:, :, :)
    real(real64), pointer :: a(:, :, :)
    if (is_missing(self, name, etude_float64, associated(array), shape(array))) return
    a(1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float64, shape(a), c_loc(a(1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
    end associate
  end subroutine

  subroutine add_real64_4(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array(:, :, :, :)
    real(real64), pointer :: a(:, :, :, :)
    if (is_missing(self, name, etude_float64, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float64, shape(a), c_loc(a(1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
    end associate
  end subroutine

  subroutine add_real64_5(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    real(real64), pointer, intent(in) :: array(:, :, :, :, :)
    real(real64), pointer :: a(:, :, :, :, :)
    if (is_missing(self, name, etude_float64, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_float64, shape(a), c_loc(a(1, 1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1, 1)), c_loc(a(1, n(2), 1, 1, 1)), c_loc(a(1, 1, n(3), 1, 1)), &
                  c_loc(a(1, 1, 1, n(4), 1)), c_loc(a(1, 1, 1, 1, n(5)))])
    end associate
  end subroutine

  subroutine add_int32_0(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array
    call place(self, name, etude_int32, shape(array), c_loc(array), none)
  end subroutine

  subroutine add_int32_1(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array(:)
    integer(int32), pointer :: a(:)
    if (is_missing(self, name, etude_int32, associated(array), shape(array))) return
    a(1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int32, shape(a), c_loc(a(1)), [c_loc(a(n(1)))])
    end associate
  end subroutine

  subroutine add_int32_2(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array(:, :)
    integer(int32), pointer :: a(:, :)
    if (is_missing(self, name, etude_int32, associated(array), shape(array))) return
    a(1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int32, shape(a), c_loc(a(1, 1)), [c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
    end associate
  end subroutine

  subroutine add_int32_3(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array(:, :, :)
    integer(int32), pointer :: a(:, :, :)
    if (is_missing(self, name, etude_int32, associated(array), shape(array))) return
    a(1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int32, shape(a), c_loc(a(1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
    end associate
  end subroutine

  subroutine add_int32_4(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array(:, :, :, :)
    integer(int32), pointer :: a(:, :, :, :)
    if (is_missing(self, name, etude_int32, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int32, shape(a), c_loc(a(1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
    end associate
  end subroutine

  subroutine add_int32_5(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int32), pointer, intent(in) :: array(:, :, :, :, :)
    integer(int32), pointer :: a(:, :, :, :, :)
    if (is_missing(self, name, etude_int32, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int32, shape(a), c_loc(a(1, 1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1, 1)), c_loc(a(1, n(2), 1, 1, 1)), c_loc(a(1, 1, n(3), 1, 1)), &
                  c_loc(a(1, 1, 1, n(4), 1)), c_loc(a(1, 1, 1, 1, n(5)))])
    end associate
  end subroutine

  subroutine add_int64_0(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array
    call place(self, name, etude_int64, shape(array), c_loc(array), none)
  end subroutine

  subroutine add_int64_1(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array(:)
    integer(int64), pointer :: a(:)
    if (is_missing(self, name, etude_int64, associated(array), shape(array))) return
    a(1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int64, shape(a), c_loc(a(1)), [c_loc(a(n(1)))])
    end associate
  end subroutine

  subroutine add_int64_2(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array(:, :)
    integer(int64), pointer :: a(:, :)
    if (is_missing(self, name, etude_int64, associated(array), shape(array))) return
    a(1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int64, shape(a), c_loc(a(1, 1)), [c_loc(a(n(1), 1)), c_loc(a(1, n(2)))])
    end associate
  end subroutine

  subroutine add_int64_3(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array(:, :, :)
    integer(int64), pointer :: a(:, :, :)
    if (is_missing(self, name, etude_int64, associated(array), shape(array))) return
    a(1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int64, shape(a), c_loc(a(1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1)), c_loc(a(1, n(2), 1)), c_loc(a(1, 1, n(3)))])
    end associate
  end subroutine

  subroutine add_int64_4(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array(:, :, :, :)
    integer(int64), pointer :: a(:, :, :, :)
    if (is_missing(self, name, etude_int64, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int64, shape(a), c_loc(a(1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1)), c_loc(a(1, n(2), 1, 1)), c_loc(a(1, 1, n(3), 1)), c_loc(a(1, 1, 1, n(4)))])
    end associate
  end subroutine

  subroutine add_int64_5(self, name, array)
    class(etude_arrays), intent(inout) :: self
    character(*), intent(in) :: name
    integer(int64), pointer, intent(in) :: array(:, :, :, :, :)
    integer(int64), pointer :: a(:, :, :, :, :)
    if (is_missing(self, name, etude_int64, associated(array), shape(array))) return
    a(1:, 1:, 1:, 1:, 1:) => array
    associate (n => min(2, shape(a)))
      call place(self, name, etude_int64, shape(a), c_loc(a(1, 1, 1, 1, 1)), &
                 [c_loc(a(n(1), 1, 1, 1, 1)), c_loc(a(1, n(2), 1, 1, 1)), c_loc(a(1, 1, n(3), 1, 1)), &
                  c_loc(a(1, 1, 1, n(4), 1)), c_loc(a(1, 1, 1, 1, n(5)))])
    end associate
  end subroutine

  subroutine point_real32_1(values, view, status)
    real(real32), pointer, intent(out) :: values(:)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float32, 1, status)) call c_f_pointer(view%data, values, sizes(view, 1))
  end subroutine

  subroutine point_real32_2(values, view, status)
    real(real32), pointer, intent(out) :: values(:, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float32, 2, status)) call c_f_pointer(view%data, values, sizes(view, 2))
  end subroutine

  subroutine point_real32_3(values, view, status)
    real(real32), pointer, intent(out) :: values(:, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float32, 3, status)) call c_f_pointer(view%data, values, sizes(view, 3))
  end subroutine

  subroutine point_real32_4(values, view, status)
    real(real32), pointer, intent(out) :: values(:, :, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float32, 4, status)) call c_f_pointer(view%data, values, sizes(view, 4))
  end subroutine

  subroutine point_real32_5(values, view, status)
    real(real32), pointer, intent(out) :: values(:, :, :, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float32, 5, status)) call c_f_pointer(view%data, values, sizes(view, 5))
  end subroutine

  subroutine point_real64_1(values, view, status)
    real(real64), pointer, intent(out) :: values(:)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float64, 1, status)) call c_f_pointer(view%data, values, sizes(view, 1))
  end subroutine

  subroutine point_real64_2(values, view, status)
    real(real64), pointer, intent(out) :: values(:, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float64, 2, status)) call c_f_pointer(view%data, values, sizes(view, 2))
  end subroutine

  subroutine point_real64_3(values, view, status)
    real(real64), pointer, intent(out) :: values(:, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float64, 3, status)) call c_f_pointer(view%data, values, sizes(view, 3))
  end subroutine

  subroutine point_real64_4(values, view, status)
    real(real64), pointer, intent(out) :: values(:, :, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float64, 4, status)) call c_f_pointer(view%data, values, sizes(view, 4))
  end subroutine

  subroutine point_real64_5(values, view, status)
    real(real64), pointer, intent(out) :: values(:, :, :, :, :)
    type(etude_view), intent(in) :: view
    integer, intent(out), optional :: status
    nullify (values)
    if (can_point(view, etude_float64, 5, status)) call c_f_pointer(view%data, values, sizes(view, 5))
  end subroutine
end module
